"""Ways to multiply: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gemmgen.ir.split import SPLITS, Split
from gemmgen.ir.types import BF16, E4M3, E5M2, F16, F32, TF32, WARP, DType
from gemmgen.isa.fragment import Fragment
from gemmgen.isa.mma import SUMS, a_fragment, b_fragment, mma
from gemmgen.isa.table import ANYWHERE, Instruction, Needs, Work
from gemmgen.isa.wgmma import DEPTH_BYTES, GROUP_THREADS, HOPPER, ROWS, work


@dataclass(frozen=True)
class Math:
    """One multiplication of ``shape`` (M x N x K), which ``threads`` execute together. ``work`` is what each of them
    does, ``needs`` the architectures that have it.

    ``inst`` multiplies tiles that lie in registers as the fragments ``a``, ``b`` ([k, n]) and ``acc`` say; plain
    multiply-adds have none. ``split``: the elements are multiplied part by part.
    """

    name: str
    shape: tuple[int, int, int]
    threads: int
    work: Work
    needs: Needs = ANYWHERE
    inst: Instruction | None = None
    a: Fragment | None = None
    b: Fragment | None = None
    acc: Fragment | None = None
    split: Split | None = None

    @property
    def plain(self) -> bool:
        """Whether each thread multiplies alone."""
        return self.threads == 1

    @property
    def by_group(self) -> bool:
        """Whether the four warps of a warp group multiply together, straight from shared memory."""
        return self.threads == GROUP_THREADS

    @property
    def by_warp(self) -> bool:
        """Whether the lanes of a warp multiply together, from fragments in their registers."""
        return self.inst is not None and self.threads == WARP


FMA = Math("fma", (1, 1, 1), 1, Work("fma", 2))
"""Plain multiply-adds: a thread's product is an outer product of single elements."""


def _mma(dtype: DType) -> Math:
    row, a, b = mma(dtype), a_fragment(dtype), b_fragment(dtype)
    assert row.work is not None
    shape = (SUMS.rows, SUMS.cols, a.cols)
    return Math(f"mma {'x'.join(map(str, shape))}", shape, WARP, row.work, row.arch, row, a, b, SUMS)


def _wgmma(dtype: DType, n: int) -> Math:
    shape = (ROWS, n, dtype.elements(DEPTH_BYTES))
    return Math(f"wgmma {'x'.join(map(str, shape))}", shape, GROUP_THREADS, work(n, dtype), HOPPER)


def _split(split: Split, n: int) -> Math:
    """By products of parts, each of a tile before the next."""
    way = _wgmma(split.part, n)
    return replace(way, name=f"{way.name} as {split.name}", split=split)


_WIDEST_SPLIT = 128
"""Columns of a product of parts at most: a thread has its sums of them twice."""
_SPLIT = tuple((x.whole, _split(x, n)) for x in SPLITS.values() for n in range(16, _WIDEST_SPLIT + 1, 8))
_GROUPS = tuple((dtype, _wgmma(dtype, n)) for dtype in (F16, BF16, TF32, E4M3, E5M2) for n in range(16, 257, 8))
_TENSOR = tuple((dtype, _mma(dtype)) for dtype in (F16, BF16, TF32, E4M3, E5M2))
MATHS: Mapping[tuple[str, DType], Math] = {
    **{(FMA.name, dtype): FMA for dtype in (F32, F16, BF16)},
    **{(row.name, dtype): row for dtype, row in (*_TENSOR, *_GROUPS, *_SPLIT)},
}
"""Each way to multiply elements of a type, by its name in a spec and the type."""
NAMES: tuple[str, ...] = tuple(dict.fromkeys(name for name, _ in MATHS))
"""What ``math`` may be in a spec."""


def types_of(name: str) -> tuple[str, ...]:
    """The element types that a way multiplies."""
    return tuple(dtype.name for n, dtype in MATHS if n == name)


def way_of(name: str, dtype: DType) -> Math:
    """How a spec's ``math`` multiplies elements of a type. Where it does not, as it would elements of its own type; a
    name that does not exist is plain multiply-adds."""
    return MATHS.get((name, dtype)) or next((row for (n, _), row in MATHS.items() if n == name), FMA)


def ways_for(dtype: DType) -> tuple[str, ...]:
    """The ways that multiply elements of a type; of those of a warp group the widest."""
    widest: dict[str, str] = {}
    for (name, d), row in MATHS.items():
        if d == dtype:
            widest[f"wgmma {row.split and row.split.name}" if row.by_group else name] = name
    return tuple(widest.values())
