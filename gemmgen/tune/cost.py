"""The time of many kernels for one product at once, by a few constants of each kernel that were measured.

A block takes ``start``, then ``tile`` for each tile of K, then ``end``. With j blocks on an SM a tile of K takes the
longer of what one block alone takes (latency) and j times a block's share of the SM (throughput). Blocks run in waves
of as many as fit; the last wave is shorter where it has fewer blocks per SM. DRAM and L2 bound the whole from below.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from gemmgen.ir.types import F32
from gemmgen.tune.shapes import Align, Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Doubles: TypeAlias = "NDArray[np.float64]"

WHOLE, SECOND, CLUSTER = 0, 1, 2
"""How the parts of K are added up: there is one part; by a second kernel; by a cluster."""
EXACT, GUARDED, UNALIGNED, PADDED = 0, 1, 2, 3
"""Variants of a kernel: whole tiles; any size; rows off 16 bytes; rows off 16 bytes, A and B copied to padded lines."""
SHARP = 4.0
"""How sharply the larger of two bounds takes over (the exponent of a norm)."""


@dataclass(frozen=True)
class Rates:
    """What a GPU does in a second, or how long something takes on it, as measured; bytes and seconds.

    ``launch``: a product that does nothing. ``second``: the kernel that adds the parts of K, before its bytes.
    ``copy`` and ``copy_byte_s``: a copy of an operand to padded lines, and bytes (read and written) of one per second;
    ``turn_byte_s`` of one that transposes.
    """

    sms: int = 132
    launch: float = 1.6e-6
    dram_byte_s: float = 3.9e12
    l2_byte_s: float = 5.5e12
    l2_bytes: float = 40e6
    second: float = 1.5e-6
    second_byte_s: float = 3.5e12
    cluster: float = 1.0e-6
    cluster_part: float = 0.1e-6
    copy: float = 2.0e-6
    copy_byte_s: float = 2.5e12
    turn_byte_s: float = 1.2e12

    def scaled(self, sms: int, clock: float, bandwidth: float) -> Rates:
        """For a GPU of the same architecture: its SMs, its clock and DRAM bandwidth relative to this one's."""
        changed = {
            "sms": sms,
            "dram_byte_s": self.dram_byte_s * bandwidth,
            "l2_byte_s": self.l2_byte_s * clock * sms / self.sms,
            "second_byte_s": self.second_byte_s * bandwidth,
            "copy_byte_s": self.copy_byte_s * bandwidth,
            "turn_byte_s": self.turn_byte_s * bandwidth,
        }
        return Rates(**({f.name: getattr(self, f.name) for f in fields(self)} | changed))


CONSTANTS = ("start", "alone", "share", "end", "exact", "unaligned", "ragged_end")
"""Of each kernel: seconds before its first tile of K, of a tile alone on an SM, of a tile as a share of the SM, of the
epilogue; factors on a tile's time of the exact variant and of rows off 16 bytes; and on ``end`` of such rows of C."""


@dataclass(frozen=True)
class Kernels:
    """The kernels of a pool, one row each: integers of their specs, and their constants in seconds."""

    block: NDArray[np.int64]  # [kernels, 3]
    parts: NDArray[np.int64]
    how: NDArray[np.int64]
    resident: NDArray[np.int64]  # blocks that fit on an SM
    constants: Doubles  # [kernels, len(CONSTANTS)]

    def constant(self, name: str) -> Doubles:
        found: Doubles = self.constants[:, CONSTANTS.index(name)]
        return found


def seconds(kernels: Kernels, shape: Any, variant: Any, rates: Rates) -> Doubles:
    """Seconds of every kernel. ``shape`` is M, N and K, numbers or arrays of one entry per kernel; ``variant`` which of
    the variants each runs."""
    import numpy as np

    m, n, k = (np.maximum(x, 1) for x in shape)
    bm, bn, bk = kernels.block.T
    tiles = -(-m // bm) * -(-n // bn)
    steps = -(-k // (bk * kernels.parts))
    blocks = tiles * kernels.parts
    factor = np.where(variant == EXACT, kernels.constant("exact"), 1.0)
    factor = np.where(variant == UNALIGNED, kernels.constant("unaligned"), factor)
    end = kernels.constant("end") * np.where(variant >= UNALIGNED, kernels.constant("ragged_end"), 1.0)
    whole, rest = np.divmod(blocks, rates.sms * kernels.resident)
    last = -(-rest // rates.sms)
    core = whole * _wave(kernels, kernels.resident, steps, factor, end) + np.where(
        rest > 0, _wave(kernels, np.maximum(last, 1), steps, factor, end), 0.0
    )
    total = rates.launch + _larger(kernels.constant("start") + core, _memory(kernels, m, n, k, rates))
    found: Doubles = total + _added(kernels, m, n, rates)
    return found


def _wave(kernels: Kernels, here: Any, steps: Any, factor: Doubles, end: Doubles) -> Doubles:
    """Seconds of ``here`` blocks on an SM together."""
    tile = _larger(kernels.constant("alone"), here * kernels.constant("share")) * factor
    found: Doubles = steps * tile + end * (0.5 + 0.5 * here)
    return found


def _larger(one: Any, other: Any) -> Any:
    return (one**SHARP + other**SHARP) ** (1 / SHARP)


def _memory(kernels: Kernels, m: Any, n: Any, k: Any, rates: Rates) -> Any:
    import numpy as np

    bm, bn, _ = kernels.block.T
    once = F32.bytes * (m * k + k * n + m * n)
    tiles = F32.bytes * (m * k * -(-n // bn) + k * n * -(-m // bm))
    dram = np.where(once > rates.l2_bytes, once / rates.dram_byte_s, 0.0)
    return np.maximum(dram, tiles / rates.l2_byte_s)


def _added(kernels: Kernels, m: Any, n: Any, rates: Rates) -> Any:
    """Seconds of adding up the parts of K."""
    import numpy as np

    moved = F32.bytes * m * n * (2 * kernels.parts + 1)
    second = rates.second + moved / rates.second_byte_s
    cluster = rates.cluster + rates.cluster_part * kernels.parts
    return np.where(kernels.how == SECOND, second, np.where(kernels.how == CLUSTER, cluster, 0.0))


def copied_s(rows: float, columns: float, rates: Rates, *, turned: bool) -> float:
    """Seconds of a copy of a matrix, transposed or to padded lines."""
    return rates.copy + 8.0 * rows * columns / (rates.turn_byte_s if turned else rates.copy_byte_s)


def aligned(align: Align) -> bool:
    return min(align) >= 16


def fits_whole(kernels: Kernels, shape: Shape) -> Any:
    """Which kernels' tiles divide a shape: they run their exact variant."""
    m, n, k = shape
    bm, bn, bk = kernels.block.T
    return (m % bm == 0) & (n % bn == 0) & (k % bk == 0)
