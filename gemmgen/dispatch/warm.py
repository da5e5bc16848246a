"""Compiles, ahead of any call, the kernels that ``matmul`` chooses from: into the cache, by several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import TYPE_CHECKING

from gemmgen.api.ready import WARMED, keep, packed
from gemmgen.diagnostics import GemmgenError

if TYPE_CHECKING:
    from pathlib import Path

    from gemmgen.ir.variant import Variant
    from gemmgen.runtime.target import Target
    from gemmgen.spec.model import Spec
    from gemmgen.target import Gpu


@dataclass(frozen=True)
class Warmed:
    """How many variants of kernels are in the cache now, bytes of their code, and what could not be compiled."""

    variants: int
    code_bytes: int
    failed: tuple[str, ...] = ()


def kernels_for(gpu: Gpu) -> Iterator[tuple[Spec, Variant]]:
    """The cover's kernels in the variants that serve any call, then those of the records that ship."""
    from gemmgen.dispatch.select import legal
    from gemmgen.dispatch.shipped import shipped
    from gemmgen.tune.compiling import variants_for
    from gemmgen.tune.cover import cover_for

    found: dict[tuple[Spec, Variant], None] = {}
    cover = cover_for(gpu)
    for spec in () if cover is None else cover.specs:
        found.update(((spec, variant), None) for variant in WARMED)
    records = shipped(gpu.arch)
    for winner in () if records is None else records.rows:
        chosen = legal(winner.spec, gpu)
        if chosen is not None:
            found.update(((chosen, variant), None) for variant in variants_for(chosen, winner.shape))
    yield from found


def pack(gpu: Gpu, target: Target, jobs: int, file: Path, say: Callable[[str], None] = lambda text: None) -> Warmed:
    """Compile them into an archive for a wheel to carry. Raises OSError; where a kernel fails, nothing is written."""
    from gemmgen.api import carried
    from gemmgen.api.specs import parse

    found = warm(gpu, target, jobs, say)
    if found.failed:
        return found
    # As a spec is when it is read again: what a call finds has no comment, and lies in no file.
    work = [(parse(spec.to_text(comment=False)), variant) for spec, variant in kernels_for(gpu)]
    size = carried.write(file, (packed(spec, variant, target) for spec, variant in work))
    return replace(found, code_bytes=size)


def warm(gpu: Gpu, target: Target, jobs: int, say: Callable[[str], None] = lambda text: None) -> Warmed:
    """Compile what is not in the cache yet."""
    work = [(spec.to_text(comment=False), variant) for spec, variant in kernels_for(gpu)]
    failed, size, done = [], 0, 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        started = [pool.submit(_kept, text, variant, target) for text, variant in work]
        for count, future in enumerate(as_completed(started), 1):
            code_bytes, why = future.result()
            if why:
                failed.append(why)
            else:
                size, done = size + code_bytes, done + 1
            say(f"{count} of {len(work)} compiled")
    return Warmed(done, size, tuple(failed))


def _kept(text: str, variant: Variant, target: Target) -> tuple[int, str]:
    from gemmgen.api.specs import parse

    try:
        found = keep(parse(text), variant, target)
    except GemmgenError as error:
        return 0, " ".join(str(error).split())[:200]
    return sum(len(built.code) for _, _, built in found.kernels), ""
