"""What limits a kernel's speed: counts, limits, the bottleneck, and the change that reduces it.

Everything here is derived from the kernel IR and the table of GPUs. What only a compiler knows (registers, spills) is
passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

from gemmgen.analysis.advice import Advice, advise
from gemmgen.analysis.counts import AccessCost, Counts, count
from gemmgen.analysis.html import explanation_html
from gemmgen.analysis.model import Bounds, Run, bounds, tiles_computed
from gemmgen.analysis.occupancy import Occupancy, named_registers, occupancy_of, register_limit
from gemmgen.analysis.paragraph import paragraph
from gemmgen.analysis.printed import explanation_text
from gemmgen.analysis.sass import MainLoop
from gemmgen.analysis.traffic import Intensity, Size, beside_bytes, flops, intensity, items_of
from gemmgen.ir.kernel import KernelIR
from gemmgen.isa.counted import TOTALS
from gemmgen.isa.memory import LINE
from gemmgen.spec.model import Spec
from gemmgen.target import Gpu


@dataclass(frozen=True)
class Compiled:
    """What the compiler made of a kernel for ``arch``: registers and spilled bytes per thread, and the main loop of the
    SASS where nvdisasm could read it."""

    registers: int
    spill_bytes: int
    arch: str
    loop: MainLoop | None = None


@dataclass(frozen=True)
class Step:
    """One launch: grid (x, y, z), scalar arguments, and the byte offsets of A, B and C in a cache line. ``ir``: the
    kernel, where it is not the main one but one before or after it."""

    grid: tuple[int, int, int]
    scalars: Mapping[str, float]
    bases: Mapping[str, int]
    ir: KernelIR | None = None


@dataclass(frozen=True)
class Explanation:
    """What a kernel does for one product on one GPU, and what limits it. ``str()`` is the text of ``gemmgen explain``,
    ``to_dict`` the JSON.

    ``counts`` are exact, summed over all launches; ``bound`` are modelled times. ``cuda_lines`` are lines of the CUDA
    text by the number of an access in program order. ``copies`` are the bytes of operands that are copied into aligned
    rows before the launches; counts and times leave them out. ``tiles`` are the tiles of C that all ``blocks`` compute,
    for each slice of K; None: one per block. ``again`` explains another spec for the same product and GPU, compiled
    too; None where this one was not compiled.
    """

    spec: Spec
    ir: KernelIR
    size: Size
    gpu: Gpu
    beta: float
    blocks: int
    counts: Counts
    compiled: Compiled | None
    occupancy: Occupancy
    intensity: Intensity
    bound: Bounds
    cuda_lines: Mapping[int, int]
    copies: Mapping[str, int] = field(default_factory=dict)
    launches: int = 1
    tiles: int | None = None
    again: Callable[[Spec], Explanation] | None = field(default=None, repr=False, compare=False)

    @property
    def items(self) -> tuple[int, int, int]:
        """Bytes per element of A, B and C."""
        return items_of(self.ir)

    @property
    def beside(self) -> dict[str, int]:
        """Bytes of each operand of the epilogue."""
        return beside_bytes(self.ir, self.size)

    @property
    def variant(self) -> str:
        """The name of the kernel's variant, by which ``gemmgen compile --variant`` writes it."""
        return self.ir.variant.label if self.ir.program is None else self.ir.program.named(self.ir.variant)

    @property
    def ridge(self) -> float:
        """flop per byte of DRAM traffic above which arithmetic, by what the kernel multiplies with, can limit it."""
        from gemmgen.analysis.model import tensor_rate

        rate = None if self.spec.way.plain else tensor_rate(self.gpu, self.ir)
        return self.gpu.ridge if rate is None else self.gpu.ridge_at(rate)

    @property
    def flops(self) -> int:
        """2 M N K."""
        return flops(self.size)

    @property
    def loop(self) -> MainLoop | None:
        """The main loop as compiled, where it is known."""
        return None if self.compiled is None else self.compiled.loop

    @property
    def run(self) -> Run:
        """The inputs of the time model."""
        return Run(
            self.ir, self.size, self.counts, self.blocks, self.gpu, self.occupancy, self.beta, self.loop, self.launches,
            self.tiles,
        )  # fmt: skip

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems that the counts alone do not show: spills, a block that does not fit on an SM."""
        return tuple(_warnings(self))

    @cached_property
    def advice(self) -> Advice | None:
        """A change that lowers the expected time. Cached, because other specs are compiled to find it."""
        return advise(self)

    @property
    def paragraph(self) -> str:
        """The bottleneck, why it limits the kernel, and the change that reduces it, as one paragraph."""
        return paragraph(self)

    def __str__(self) -> str:
        return explanation_text(self)

    def _repr_html_(self) -> str:
        return explanation_html(self)

    def accesses(self) -> list[dict[str, Any]]:
        """One row per executed load or store, in program order."""
        return [self._row(i, a) for i, a in enumerate(self.counts.accesses) if a.cost.requests]

    def _row(self, number: int, a: AccessCost) -> dict[str, Any]:
        origin = a.statement.origin or "tile block"
        return {
            "operand": a.operand,
            "op": a.op,
            "space": a.space,
            "width": a.width,
            "spec_line": self.ir.source.line(origin),
            "cuda_line": self.cuda_lines.get(number),
            **a.cost.each(a.space),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; ``epilogue`` only where the spec has one."""
        chain = {"epilogue": list(self.spec.epilogue)} if self.spec.epilogue else {}
        return {
            "kernel": self.ir.name,
            "size": list(self.size),
            "gpu": self.gpu.name,
            "variant": self.variant,
            "blocks": self.blocks,
            "threads_per_block": self.ir.threads,
            "shared_bytes": self.ir.shared_bytes,
            "registers": None if self.compiled is None else {
                "per_thread": self.compiled.registers,
                "spill_bytes": self.compiled.spill_bytes,
                "arch": self.compiled.arch,
            },
            "occupancy": self.occupancy.to_dict(),
            "flops": self.flops,
            "fma": self.counts.fma,
            **({"tensor": self.counts.math["tensor"]} if self.counts.mma else {}),
            **{
                space: {op: self.counts.total(space, op).totals(space) for op in ("load", "store")} for space in TOTALS
            },
            "accesses": self.accesses(),
            "intensity": self.intensity.to_dict(),
            "bound": self.bound.to_dict(),
            **chain,
        }  # fmt: skip


def explained(
    spec: Spec,
    ir: KernelIR,
    size: Size,
    gpu: Gpu,
    steps: tuple[Step, ...],
    beta: float = 0.0,
    compiled: Compiled | None = None,
    cuda_lines: Mapping[int, int] | None = None,
    copies: Mapping[str, int] | None = None,
) -> Explanation:
    """The explanation of a product that ``steps`` launch, in order. Without ``compiled``, occupancy is computed from
    the registers that the program names, which is a lower limit."""
    # The main kernel's accesses come first: their numbers are those of its text.
    order = sorted(_alike(steps), key=lambda some: some[0].ir is not None)
    counts = sum((count(s.ir or ir, s.scalars, s.grid, s.bases) * n for s, n in order), Counts())
    blocks = sum(prod(s.grid) for s in steps if s.ir is None)
    # The compiler spills what the program names beyond the register limit of a thread.
    named = min(named_registers(ir.body), register_limit(ir, gpu))
    registers = named if compiled is None else compiled.registers
    fits = occupancy_of(gpu.limits, ir.threads, registers, ir.shared_bytes)
    launches = max(1, len(steps))
    tiles = sum(tiles_computed(ir, s.grid, s.scalars) for s in steps if s.ir is None)
    run = Run(ir, size, counts, blocks, gpu, fits, beta, compiled.loop if compiled else None, launches, tiles)
    return Explanation(
        spec, ir, size, gpu, beta, blocks, counts, compiled, fits,
        intensity(size, counts, beta, items_of(ir), beside_bytes(ir, size)),
        bounds(run),
        (cuda_lines or {}) if any(s.ir is None for s in steps) else {},  # lines are those of the main kernel's text
        copies or {},
        launches,
        tiles,
    )  # fmt: skip


def _alike(steps: Iterable[Step]) -> Iterator[tuple[Step, int]]:
    """The distinct steps and how often each occurs. A large product has very many launches, and all but those at its
    edges have the same counts."""
    found: dict[tuple[Hashable, ...], list[Step]] = {}
    for s in steps:
        places = tuple((name, base % LINE) for name, base in s.bases.items())
        found.setdefault((s.ir is None, s.grid, tuple(s.scalars.items()), places), []).append(s)
    return ((same[0], len(same)) for same in found.values())


def _warnings(e: Explanation) -> list[str]:
    found = []
    need, limit = named_registers(e.ir.body), register_limit(e.ir, e.gpu)
    if e.compiled is not None and e.compiled.spill_bytes:
        found.append(
            f"spills: {e.compiled.spill_bytes} bytes per thread go to memory, because {e.ir.threads} threads per block "
            f"leave {limit} registers per thread; use fewer threads per block or a smaller tile thread"
        )
    elif need >= limit:
        found.append(
            f"spills: {e.ir.threads} threads per block leave {limit} registers per thread, and its values need "
            f"{need} without addresses; use fewer threads per block or a smaller tile thread"
        )
    if e.occupancy.blocks_per_sm == 0:
        found.append(f"no block fits on an SM of {e.gpu.title}: limited by {e.occupancy.limiter}")
    return found
