"""What a kernel asks of the compiler, told from its spec: registers that a thread has not got, and long texts."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.types import WARP
from gemmgen.spec.model import Spec
from gemmgen.target import MOST, Limits, known_limits

FEWEST = 8
"""Registers beside a thread's sums that no compiler does without: two factors, pointers, where it is along K."""
LONG = 4096
"""Multiply-adds in a kernel's text above which it may take a compiler seconds; spilling makes it several times that."""
MANY = 256
"""Sums of a thread above which spilling alone takes a compiler seconds."""


def sums(spec: Spec) -> int:
    """Running sums that a thread keeps; with promotion those of one tile besides."""
    m_iter, n_iter = spec.warp_iterations
    return spec.piece[0] * spec.piece[1] * m_iter * n_iter * (2 if spec.promotes else 1)


def products(spec: Spec) -> int:
    """Multiplications in the text of a thread's main loop: each of a thread's own, or of its warp or warp group."""
    if spec.way.by_group:
        terms = 1 if spec.way.split is None else len(spec.way.split.terms)
        return spec.block[2] // spec.way.shape[2] * terms
    if spec.way.by_warp and spec.warp is not None:
        m, n, k = spec.way.shape
        return spec.warp[0] // m * (spec.warp[1] // n) * (spec.block[2] // k)
    steps = (spec.unroll or spec.block[2]) if spec.has("smem") or spec.lanes_k > 1 else 1
    steps = max(1, steps // spec.lanes_k)
    return sums(spec) * steps


def registers_at_most(spec: Spec, limits: Limits) -> int:
    """Registers that a thread can have where a block, or ``min_blocks`` of them, must fit on a multiprocessor."""
    warps = -(-spec.threads // WARP) * max(1, spec.min_blocks)
    of_warp = limits.registers // (warps * limits.register_unit) * limits.register_unit
    return min(limits.registers_per_thread, of_warp // WARP)


def spilling(spec: Spec) -> str | None:
    """Why a thread's sums cannot all stay in registers; None where they may."""
    count, most = sums(spec), registers_at_most(spec, _limits(spec))
    if count + FEWEST <= most:
        return None
    shared = f" ({_blocks(spec)} on a multiprocessor)" if most < _limits(spec).registers_per_thread else ""
    return f"a thread keeps {count} sums and has at most {most} registers{shared}"


def spill_notes(spec: Spec) -> Iterator[str]:
    """Sums that must spill, and blocks that cannot be on a multiprocessor together: legal, and seldom meant."""
    limits, warps = _limits(spec), -(-spec.threads // WARP)
    if spec.min_blocks and (spec.min_blocks > limits.blocks or spec.min_blocks * warps > limits.warps):
        fits, where = min(limits.blocks, limits.warps // warps), spec.arch or "any GPU"
        most = f"at most {fits} blocks of {warps} warps fit on an SM of {where}"
        yield f"min_blocks {spec.min_blocks} cannot be met: {most}"
    elif why := spilling(spec):
        tile = "BN" if spec.way.by_group else "tile thread"
        yield f"{why}: it must spill to local memory, which is slow and slow to compile; make {tile} smaller"


def slow_to_compile(spec: Spec) -> str:
    """What makes a kernel's compilation long, in words; empty where it is not."""
    count, text = sums(spec), products(spec)
    if text <= LONG and count <= MANY:
        return ""
    return f"{spilling(spec) or f'a thread keeps {count} sums'}, and the main loop's text has {text:,} multiply-adds"


def _limits(spec: Spec) -> Limits:
    """Those of the spec's architecture; the most that any has, where it names none or they are not known."""
    return (known_limits(spec.arch) if spec.arch else None) or MOST


def _blocks(spec: Spec) -> str:
    few = f"{spec.min_blocks} blocks" if spec.min_blocks > 1 else "a block"
    return f"{few} of {spec.threads} threads"
