"""What ``compile`` and ``run`` make of specs: texts, compiled kernels, files, and the table of resources."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from gemmgen.cli import exits, output
from gemmgen.cli.files import check_writable, write_file
from gemmgen.cli.options import Emit
from gemmgen.diagnostics import escaped
from gemmgen.spec.effort import slow_to_compile

if TYPE_CHECKING:
    from gemmgen.ir.kernel import KernelIR
    from gemmgen.runtime.nvrtc import Compiled
    from gemmgen.spec.model import Spec

WRITTEN = ("exact", "guarded")
"""The variants that ``compile`` writes: the text to study, and the same with its edges guarded."""


@dataclass(frozen=True)
class Text:
    """One CUDA text: a kernel of a spec in one variant, and the architecture to compile it for. ``stem`` names its
    files: a spec changed by ``--set`` has files of its own, which do not replace those of the spec as it is written."""

    spec: Spec
    ir: KernelIR
    source: str
    arch: str
    variant: str

    @property
    def stem(self) -> str:
        plain = self.variant == "exact" or (self.beside and self.variant in WRITTEN)
        stem = f"{self.ir.name}{changed(self.spec)}"
        return stem if plain else f"{stem}_{self.variant}"

    @property
    def beside(self) -> bool:
        """Whether it is a kernel before or after the main one; it knows no tiles, so its text is that of any size."""
        return self.ir.part != "main"


def changed(spec: Spec) -> str:
    """The settings of ``--set`` as the end of a file's name: ``_float4_off``. Empty where there are none, or only a new
    name, which names the files itself."""
    settings = [setting.strip("'") for setting in spec.filename.split(" --set ")[1:]]
    kept = [
        re.sub(r"[^A-Za-z0-9]+", "_", setting).strip("_") for setting in settings if not setting.startswith("name=")
    ]
    return "".join(f"_{setting}" for setting in kept)


def texts(specs: Sequence[Spec], arch: str | None, variants: Sequence[str] = WRITTEN) -> list[Text]:
    """The CUDA of each spec in each variant, for ``arch``, or what the spec says, or this machine's; last those
    of the kernels before and after it, where there are any.

    Raises UsageError where two would be one file, and where the architecture lacks what a spec uses.
    """
    import gemmgen
    from gemmgen.api.specs import unfit
    from gemmgen.cuda.emit import emit_cuda

    made: dict[str, Text] = {}
    for spec in specs:
        target = arch or spec.arch or default_arch()
        if problem := unfit(spec, target):
            raise exits.UsageError(f"{escaped(spec.filename)}: {problem}; or choose another architecture with --arch")
        for note in spec.notes:
            output.say(f"{escaped(spec.filename)}: note: {note}")
        kernels = [(gemmgen.lower(spec, variant), variant) for variant in variants]
        beside = [(ir, variant) for main, variant in kernels for ir in main.kernels if ir is not main]
        for ir, variant in (*kernels, *beside):
            text = Text(spec, ir, emit_cuda(ir), ir.target(target), variant)
            other = made.setdefault(text.stem, text)
            if other.source != text.source or other.spec is not spec:
                raise exits.UsageError(_clash(other.spec, spec, text.stem))
    return list(made.values())


def _clash(one: Spec, other: Spec, stem: str) -> str:
    """Why the texts of two specs cannot be written side by side, and what to do."""
    names = [escaped(spec.filename) for spec in (one, other)]
    if one.filename == other.filename or _same_file(one.filename, other.filename):
        twice = names[0] if names[0] == names[1] else " and ".join(names)
        return f"the same spec is given twice: {twice}; give it once"
    return f"{' and '.join(names)} would both be {stem}.cu; give one kernel another name"


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # stdin, or a file with settings of the command line beside it
        return False


@functools.cache
def default_arch() -> str:
    """This machine's GPU's architecture, or sm_90 where there is none."""
    from gemmgen.runtime.device import current
    from gemmgen.runtime.target import DEFAULT_ARCH

    device = current()
    return DEFAULT_ARCH if device is None else device.arch


def compile_all(wanted: Sequence[Text]) -> list[Compiled]:
    """A cubin of each text, two at a time.

    Raises NvrtcMissing, CompileError where NVRTC refuses one, UsageError where it does not know the architecture.
    """
    from concurrent.futures import ThreadPoolExecutor

    from gemmgen.runtime.nvrtc import UnknownArchitecture, compile_cubin

    def one(text: Text) -> Compiled:
        return compile_cubin(
            text.source, text.arch, name=text.ir.name, filename=f"{text.stem}.cu", slow=slow_to_compile(text.spec)
        )

    try:
        with output.progress(f"compiling {', '.join(text.stem for text in wanted)}"), ThreadPoolExecutor(2) as pool:
            return list(pool.map(one, wanted))
    except UnknownArchitecture as error:
        raise exits.UsageError(str(error)) from error


def rendered(wanted: Sequence[Text], emit: Emit) -> Iterator[tuple[Text, bytes]]:
    """Each text in the form asked for. Raises CompileError where that form cannot be made here."""
    match emit:
        case Emit.tile:
            from gemmgen.tile import build, print_tile

            tiled = (text for text in wanted if not text.beside)
            yield from ((text, print_tile(build(text.spec, text.ir.variant)).encode()) for text in tiled)
        case Emit.ir:
            yield from ((text, f"{str(text.ir).rstrip()}\n".encode()) for text in wanted)
        case Emit.cuda:
            yield from ((text, text.source.encode()) for text in wanted)
        case Emit.ptx:
            yield from ((text, ptx(text).encode()) for text in wanted)
        case Emit.cubin | Emit.sass:
            from gemmgen.runtime.sass import disassemble

            for text, compiled in zip(wanted, compile_all(wanted), strict=True):
                yield text, compiled.cubin if emit is Emit.cubin else disassemble(compiled.cubin).encode()
        case _:
            assert_never(emit)


def ptx(text: Text) -> str:
    from gemmgen.runtime.nvrtc import UnknownArchitecture, compile_ptx

    slow = slow_to_compile(text.spec)
    try:
        return compile_ptx(text.source, text.arch, name=text.ir.name, filename=f"{text.stem}.cu", slow=slow)
    except UnknownArchitecture as error:
        raise exits.UsageError(str(error)) from error


SUFFIX: Mapping[Emit, str] = {
    Emit.tile: ".tile", Emit.ir: ".ir", Emit.cuda: ".cu", Emit.ptx: ".ptx", Emit.cubin: ".cubin", Emit.sass: ".sass",
}  # fmt: skip


def check_folder(wanted: Sequence[Text], folder: Path, emit: Emit) -> None:
    """Raise OSError where the forms of texts cannot be written into a folder, before they are made."""
    for text in wanted:
        check_writable(folder / f"{text.stem}{SUFFIX[emit]}")


def write(made: Sequence[tuple[Text, bytes]], folder: Path, emit: Emit) -> list[Path]:
    """Write each form into the folder, whole or not at all, and say so. Raises OSError."""
    paths = []
    for text, data in made:
        path = folder / f"{text.stem}{SUFFIX[emit]}"
        write_file(path, data)
        output.wrote(path)
        paths.append(path)
    return paths


@dataclass(frozen=True)
class Resources:
    """A row of the table of resources. ``shared_bytes`` static and dynamic; ``blocks_per_sm`` and what limits it are
    None for an architecture whose limits are not known."""

    kernel: str
    variant: str
    arch: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    threads: int
    blocks_per_sm: int | None
    limiter: str | None


HEADERS = ("kernel", "variant", "registers", "spilled bytes", "shared bytes", "threads", "blocks per SM", "limited by")


def resources_of(text: Text, compiled: Compiled) -> Resources:
    from gemmgen.analysis.occupancy import occupancy_of
    from gemmgen.diagnostics import ArgumentError
    from gemmgen.target import limits

    found, ir = compiled.resources, text.ir
    blocks: int | None = None
    limiter: str | None = None
    try:
        fit = occupancy_of(limits(text.arch), ir.threads, found.registers, ir.shared_bytes)
        blocks, limiter = fit.blocks_per_sm, fit.limiter
    except ArgumentError:
        pass  # an architecture that NVRTC knows and the table of limits does not
    return Resources(
        ir.name, text.variant, text.arch, found.registers, found.spill_bytes, ir.shared_bytes, ir.threads,
        blocks, limiter,
    )  # fmt: skip


def resource_table(rows: Sequence[Resources]) -> str:
    from gemmgen.report.table import format_table

    body: list[list[Any]] = [
        [r.kernel, r.variant, r.registers, r.spill_bytes, r.shared_bytes, r.threads, r.blocks_per_sm, r.limiter]
        for r in rows
    ]
    archs = ", ".join(sorted({r.arch for r in rows}))
    return f"{format_table(HEADERS, body)}\ncompiled for {archs}"
