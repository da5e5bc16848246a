"""What wgmma does, on NumPy arrays of lanes.

An instruction only starts its product: its operands are read, and its sums written, as late as the program allows, when
the warp group waits for it. Until then what it reads is in use: whoever overwrites it is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from gemmgen.ir.types import F32, VECTOR_BYTES, WARP, DType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gemmgen.isa.machine import IndexArgument, InUse, Lanes, MemoryArgument, RegisterArgument

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Numbers = NDArray[Any]

Major = Literal["k", "mn"]
ROWS, GROUP_WARPS = 64, 4
GROUP = GROUP_WARPS * WARP
ATOM = 128
"""Bytes of a row that the swizzle permutes."""


@dataclass
class Started:
    """A product on its way: how to finish it, and what it reads until then. ``lanes`` are those of its warp groups."""

    finish: Callable[[], None]
    uses: tuple[InUse, ...]


@dataclass
class Groups:
    """The products of each warp group that are on their way, and whether its registers have been fenced."""

    fenced: Bools
    open: list[Started] = field(default_factory=list)
    closed: list[Started] = field(default_factory=list)


def _groups(lanes: Lanes) -> Groups:
    """What the active lanes have started; warp groups that run different programs have their own."""
    import numpy as np

    on = lanes.on
    key = ("wgmma", int(lanes.batch.thread[on[0]]) // GROUP if on.size else 0, on.size)
    found = lanes.state.get(key)
    if found is None:
        found = lanes.state[key] = Groups(np.zeros(1, np.bool_))
    assert isinstance(found, Groups)
    return found


def nothing(lanes: Lanes) -> None:
    """It moves no data that the simulator keeps apart."""


def fence(lanes: Lanes) -> None:
    """Registers are in order with the products that follow."""
    _groups(lanes).fenced[0] = True


def commit(lanes: Lanes) -> None:
    """The products that were started are a group."""
    found = _groups(lanes)
    found.closed += found.open
    found.open = []


def wait(lanes: Lanes, *sums: RegisterArgument) -> None:
    """``(sums, ...)``: all groups are finished."""
    found = _groups(lanes)
    for started in found.closed:
        started.finish()
        for use in started.uses:
            use.end()
    found.closed = []
    found.fenced[0] = False


def product(
    n: int, depth: int, dtype: DType, majors: tuple[Major, Major], rows: tuple[int, int]
) -> Callable[..., None]:
    """``(d, a, b)``: start d += A B; ``(d, a, b, add)``: or d = A B, where ``add`` is 0."""

    def meaning(
        lanes: Lanes, d: RegisterArgument, a: MemoryArgument, b: MemoryArgument, add: IndexArgument | None = None
    ) -> None:
        import numpy as np

        on = lanes.on
        if not on.size:
            return
        groups = _groups(lanes)
        if not groups.fenced[0]:
            other = "no wgmma_fence puts its registers in order with the product"
            lanes.fault("async", a.array.name, int(on[0]), (), other)
        leaders = on.reshape(-1, GROUP)[:, 0]
        places = [
            _elements(x.first()[leaders], major, extent, depth, panel, dtype)
            for x, major, extent, panel in ((a, majors[0], ROWS, rows[0]), (b, majors[1], n, rows[1]))
        ]
        anew = add is not None and not add()[on[0]]
        uses = tuple(x.use(at, leaders, GROUP_WARPS) for x, at in zip((a, b), places, strict=True))

        def finish() -> None:
            left = uses[0].values().reshape(ROWS, depth, -1).astype(F32.numpy_dtype)
            right = uses[1].values().reshape(n, depth, -1).astype(F32.numpy_dtype)
            found = np.matmul(left.transpose(2, 0, 1), right.transpose(2, 1, 0))
            d.accumulate(_by_lane(found, n), on, anew)

        groups.open.append(Started(finish, uses))

    return meaning


def _by_lane(sums: Numbers, n: int) -> Numbers:
    """[groups, 64, n] as the registers [n / 2, lanes] of each group's 128 lanes: of row lane / 4 of its warp's 16,
    and of that 8 further down, columns 8 j + 2 (lane % 4) and the next (PTX ISA, "Register fragments of wgmma")."""
    groups = len(sums)
    split = sums.reshape(groups, 4, 2, 8, n // 8, 4, 2)  # group, warp, half, row, j, quad, column
    ordered = split.transpose(2, 4, 6, 0, 1, 3, 5)
    return ordered.reshape(n // 2, groups * GROUP)


def _elements(first: Ints, major: Major, extent: int, depth: int, panel: int, dtype: DType) -> Ints:
    """The elements [extent * depth, groups] of a tile whose first one is given, in the order (m or n, k).

    The swizzle permutes the pieces of 16 bytes of a row of 128 bytes by the lowest three bits of the row's number,
    which are bits of the address: tiles start at multiples of 1024 bytes.
    """
    return _swizzled(first[None, :] + _offsets(major, extent, depth, panel, dtype)[:, None], dtype)


@cache
def _offsets(major: Major, extent: int, depth: int, panel: int, dtype: DType) -> Ints:
    import numpy as np

    row = ATOM // dtype.bytes
    x, k = np.arange(extent, dtype=np.int64)[:, None], np.arange(depth, dtype=np.int64)[None, :]
    at = x * row + k if major == "k" else x // row * (panel * row) + k * row + x % row
    return at.reshape(-1)


def _swizzled(elements: Ints, dtype: DType) -> Ints:
    piece, row = dtype.elements(VECTOR_BYTES), dtype.elements(ATOM)
    swizzled: Ints = elements ^ (elements // row & 7) * piece
    return swizzled
