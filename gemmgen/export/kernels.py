"""What an export holds of a spec: its variants, the kernels that they share, and each kernel compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Literal, TypeAlias

from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.types import VECTOR_BYTES
from gemmgen.ir.variant import EXACT, GUARDED, Variant
from gemmgen.launch.placement import OPERANDS

if TYPE_CHECKING:
    from gemmgen.ir.kernel import KernelIR
    from gemmgen.ir.program import Part, Program
    from gemmgen.spec.model import Spec

KNOWN = ("M", "N", "K", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc", "W", "ldw")
"""The parameters that the launcher fills in for every kernel; others are operands of the epilogue."""
PARTS: tuple[Part, ...] = ("first", "main", "then")
SUFFIX = {"first": "_scale", "main": "", "then": "_reduce"}
Kind: TypeAlias = Literal["int", "size", "float", "pointer", "tensormap"]


@dataclass(frozen=True)
class Kernel:
    """A kernel of an export. ``source`` is its CUDA in a namespace of its own; ``ptx`` is empty where none can be."""

    ir: KernelIR
    source: str
    cubin: bytes = b""
    ptx: bytes = b""

    @property
    def name(self) -> str:
        return self.ir.name


@dataclass(frozen=True)
class Exported:
    """A spec in an export: ``variants``, the fastest first, with the number of each one's kernel by part (-1: none)."""

    spec: Spec
    name: str
    arch: str
    program: Program
    variants: tuple[tuple[Variant, str, tuple[int, int, int]], ...]
    kernels: tuple[Kernel, ...]


def variants_of(program: Program) -> Iterator[tuple[Variant, str]]:
    """The variants to export, with their labels: whole tiles; any size; and any size with narrow accesses to those
    operands whose rows are not aligned, which are named behind the label where they are not all. Operands that no
    kernel of the spec reads so have none."""
    yield EXACT, "exact"
    items = {x.name: x.dtype.bytes for x in program.matrices}
    wide = [x for x in OPERANDS if program.alignment[x] > items[x] and x not in program.aligned]
    for count in range(len(wide) + 1):
        for narrow in combinations(wide, count):
            align = tuple((x, items[x] if x in narrow else VECTOR_BYTES) for x in OPERANDS)
            variant = Variant(GUARDED.guard, align)
            yield variant, program.named(variant)


def described(spec: Spec, arch: str, name: str, project: str) -> Exported:
    """A spec's variants with their kernels as text, none of them compiled."""
    from gemmgen.lower import lower

    program = lower(spec, EXACT).program
    assert program is not None
    if program.batched:
        raise ArgumentError(
            f"{spec.name} computes batches, which an export does not launch; take batched out of its use"
        )
    kernels: dict[str, tuple[int, Kernel]] = {}
    rows = []
    for variant, label in variants_of(program):
        numbers = dict.fromkeys(PARTS, -1)
        for ir in lower(spec, variant).kernels:
            kernel = _named(ir, f"{name}_{label}{SUFFIX[ir.part]}", project)
            number, _ = kernels.setdefault(_code(ir), (len(kernels), kernel))
            numbers[ir.part] = number
        rows.append((variant, label, (numbers["first"], numbers["main"], numbers["then"])))
    made = tuple(kernel for _, kernel in kernels.values())
    arch = next((x for x in (kernel.ir.target(arch) for kernel in made) if x != arch), arch)
    _refuse_unknown(spec, program, made)
    return Exported(spec, name, arch, program, tuple(rows), made)


def _named(ir: KernelIR, name: str, project: str) -> Kernel:
    """The kernel under a name that no other of the export has, in a namespace of that name."""
    from gemmgen.cuda.emit import emit_cuda

    renamed = replace(ir, name=name)
    header, rest = emit_cuda(renamed).split("\n\n", 1)
    opened, closed = (
        f"namespace {project} {{\nnamespace {name} {{",
        f"}}  // namespace {name}\n}}  // namespace {project}",
    )
    return Kernel(renamed, f"{header}\n\n{opened}\n\n{rest}\n{closed}\n")


def _code(ir: KernelIR) -> str:
    """The text that the compiler sees, but for the name: kernels of two variants may have the same."""
    from gemmgen.cuda.emit import emit_cuda

    return re.sub(r"//[^\n]*", "", emit_cuda(replace(ir, name="kernel")))


def own_names(program: Program) -> dict[str, tuple[str, int]]:
    """What each parameter of an epilogue is: an operand beside A, B and C ("beside") or its leading dimension."""
    found = {}
    for i, x in enumerate(program.beside):
        found[x.name] = ("beside", i)
        if x.matrix is not None:
            found[x.matrix.leading] = ("leading", i)
    return found


def _refuse_unknown(spec: Spec, program: Program, kernels: Sequence[Kernel]) -> None:
    """Raise ArgumentError for a kernel that the launcher has no arguments for."""
    names = {*KNOWN, *own_names(program)}
    for kernel in kernels:
        for m in kernel.ir.tensor_maps:
            if m.operand not in OPERANDS:
                raise ArgumentError(f"{spec.name} has a tensor map of {m.operand}; an export makes them of A, B and C")
        for p in kernel.ir.params:
            if p.kind != "tensormap" and p.name not in names:
                raise ArgumentError(f"{spec.name} has a parameter {p.name}, which an export cannot fill in")


def compiled(exported: Exported) -> Exported:
    """The same with a cubin of every kernel, and PTX for newer GPUs. Raises CompileError."""
    with ThreadPoolExecutor(2) as pool:
        kernels = tuple(pool.map(lambda k: _compiled(k, exported), exported.kernels))
    return replace(exported, kernels=kernels)


def _compiled(kernel: Kernel, exported: Exported) -> Kernel:
    from gemmgen.runtime.nvrtc import compile_cubin, compile_ptx
    from gemmgen.spec.effort import slow_to_compile

    arch, slow = kernel.ir.target(exported.arch), slow_to_compile(exported.spec)
    found = compile_cubin(kernel.source, arch, name=kernel.name, slow=slow)
    ptx = compile_ptx(kernel.source, arch, name=kernel.name, slow=slow) if arch[-1].isdigit() else ""
    return replace(kernel, cubin=found.cubin, ptx=ptx.encode() + b"\0" if ptx else b"")
