"""Float32 as several numbers of fewer bits, so that tensor cores multiply it: the parts, and which products are added.

A float32 has 24 bits of significand, a bfloat16 8 and a tf32 11: three bfloat16 hold a float32, and two tf32 nearly.
Of the products of two such sums, those below the last bit of the largest are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmgen.ir.types import BF16, F32, TF32, DType

if TYPE_CHECKING:
    from numpy.typing import NDArray


_INFINITY, _QUIET = 0x7F800000, 0x00400000
"""The bits of an infinity, and the one that a NaN keeps when others are cut off."""


@dataclass(frozen=True)
class Split:
    """Elements of ``whole`` as ``parts`` numbers of type ``part``, the largest first: what is left of the element after
    each is the next. ``terms`` are the products (part of A, part of B) in the order in which they are added: small ones
    first, since a tensor core cuts off what is below the last bit of its sum.

    A part has the highest ``bits`` bits of a float32, rounded to the nearest, of two the even one.
    """

    name: str
    whole: DType
    part: DType
    parts: int
    terms: tuple[tuple[int, int], ...]
    bits: int

    def of(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """The parts of an array. One that is not finite is its first part, and so is not lost; one that would be
        rounded to an infinity is cut off, and the rest is in the next."""
        import numpy as np

        whole = self.whole.numpy_dtype
        found, low, rest = [], 32 - self.bits, np.array(values, whole)
        for _ in range(self.parts):
            u, finite = rest.view(np.uint32), np.isfinite(rest)
            up = u + (np.uint32((1 << (low - 1)) - 1) + (u >> np.uint32(low) & np.uint32(1)))
            kept = np.where(finite, up, u | np.where(np.isnan(rest), np.uint32(_QUIET), np.uint32(0)))
            over = finite & (kept & np.uint32(_INFINITY) == np.uint32(_INFINITY))
            part = (np.where(over, u, kept) >> np.uint32(low) << np.uint32(low)).view(whole)
            left = np.where(finite, rest, whole.type(0)) - np.where(finite, part, whole.type(0))
            rest = left.astype(whole)
            found.append(part.astype(self.part.numpy_dtype))
        return found


BF16X6 = Split("bf16x6", F32, BF16, 3, ((1, 1), (0, 2), (2, 0), (0, 1), (1, 0), (0, 0)), 16)
TF32X3 = Split("tf32x3", F32, TF32, 2, ((0, 1), (1, 0), (0, 0)), 19)
SPLITS: Mapping[str, Split] = {x.name: x for x in (BF16X6, TF32X3)}
"""The ways to split float32, by their names in a spec."""
