"""Products by tensor cores in ``gemmgen.matmul``: bfloat16, float16, and float32 as tf32 where the caller asks for it.

A few specs for each type, of which the one is taken that needs the fewest rounds of the GPU's multiprocessors at the
shape. A and B are read as they lie, by rows or by columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError, one_of
from gemmgen.dispatch import groups
from gemmgen.ir.split import SPLITS
from gemmgen.ir.types import BF16, ELEMENT_TYPES, F16, F32, TF32, DType
from gemmgen.spec.model import Operand, Spec

if TYPE_CHECKING:
    from gemmgen.api.kernel import Kernel
    from gemmgen.dispatch.select import Choice
    from gemmgen.ir.types import Order
    from gemmgen.target import Gpu

PRECISIONS = ("exact", "tf32", *SPLITS)
NARROW = {BF16.numpy: BF16, F16.numpy: F16}
"""The types that tensor cores alone multiply quickly, by NumPy's names."""


@dataclass(frozen=True)
class Tile:
    """A kernel's tiles, for types of 16 bits (BK is halved for tf32). ``rate`` is how much of a full multiprocessor's
    speed its main loop reaches, ``per_sm`` how many blocks one holds."""

    block: tuple[int, int, int]
    warp: tuple[int, int]
    stages: int
    rate: float
    per_sm: int = 1


TILES: tuple[Tile, ...] = (
    Tile((128, 256, 64), (64, 64), 3, 1.0),
    Tile((128, 128, 64), (64, 64), 3, 0.9, 2),
    Tile((64, 128, 64), (32, 64), 4, 0.72, 2),
    Tile((64, 64, 64), (32, 32), 4, 0.5, 3),
    Tile((32, 64, 64), (16, 32), 4, 0.33, 4),
    Tile((16, 64, 128), (16, 16), 4, 0.2, 3),
)
LEAST_STEPS = 4
"""Steps along K that a part of a split sum has at least."""
PARTS_OF_K = (1, 2, 4, 8, 16)
OVERHEAD_S, STEP_S, SPLIT_S = 4e-6, 0.6e-6, 5e-6
"""Seconds of a launch, of filling a block's pipeline, and of the kernel that adds up parts: those of an H200."""


def tensor_type(A: Any, precision: str) -> DType | None:
    """The type by which tensor cores multiply an operand; None where multiply-adds do. Raises ArgumentError for a
    precision that does not exist."""
    if not isinstance(precision, str) or precision not in PRECISIONS:
        one_of("precision", precision, PRECISIONS)
    found = NARROW.get(str(getattr(A, "dtype", "")).rpartition(".")[2])
    return found or (TF32 if precision == "tf32" else None)


def tensor_choice(dtype: DType, size: tuple[int, int, int], layout: str, gpu: Gpu) -> Choice:
    """The kernel for a product of a type on a GPU, with the seconds that the choice goes by."""
    from gemmgen.dispatch.device import SIMULATED_GPU
    from gemmgen.dispatch.select import Choice
    from gemmgen.target import gpu as gpu_named

    orders: tuple[Order, Order, Order] = (*("col" if x == "t" else "row" for x in layout), "row")  # type: ignore[assignment]
    own = F32 if dtype == TF32 else dtype
    whole = (max(1, size[0]), max(1, size[1]), size[2])
    grouped = gpu.arch == groups.ARCH
    wide = groups.group_spec(dtype, own, whole, orders, gpu.sms, "matmul") if grouped else None
    if wide is not None:
        expected = groups.expected_s(dtype, own, whole, gpu.sms)
        return Choice(wide, "model", None, expected, gpu=gpu.title)
    slower = _rate(gpu_named(SIMULATED_GPU), BF16) / _rate(gpu, own)  # constants are those of 16 bits
    expected = slower * min(_seconds(c, whole, gpu.sms) for c in _candidates(whole))
    return Choice(spec_for(dtype, own, whole, orders, gpu.sms), "model", None, expected, gpu=gpu.title)


def _rate(gpu: Gpu, dtype: DType) -> float:
    """TFLOP/s of an SM's tensor cores; of its multiply-adds where those of the type are not known."""
    return (gpu.tensor_tflops(8 * dtype.bytes) or gpu.fp32_tflops) / gpu.sms


def tensor_kernel(
    dtype: DType, out: DType, A: tuple[Any, ...], B: tuple[Any, ...], C: tuple[Any, ...] | None, batched: bool = False
) -> Kernel:
    """The kernel for operands of these descriptions (shape, strides, address, device), those of one product of a batch
    where it is ``batched``."""
    if len(A[0]) != 2 or len(B[0]) != 2:
        raise ArgumentError(f"A has shape {tuple(A[0])} and B {tuple(B[0])}; a matrix has 2 dimensions")
    (m, k), n = A[0], B[0][1]
    orders = order_of(A), order_of(B), "row" if C is None else order_of(C)
    return _kernel(dtype, out, (int(m), int(n), int(k)), orders, A[3], batched)


def order_of(described: tuple[Any, ...]) -> Order:
    """By columns where the columns are contiguous and the rows are not."""
    (rows, columns), strides = described[:2]
    return "col" if strides[0] == 1 and strides[1] != 1 and rows > 1 and columns > 1 else "row"


@lru_cache(maxsize=4096)
def _kernel(
    dtype: DType, out: DType, size: tuple[int, int, int], orders: tuple[Order, Order, Order], device: int, batched: bool
) -> Kernel:
    from gemmgen.api.kernel import PATIENCE
    from gemmgen.dispatch.device import HOST
    from gemmgen.dispatch.matmul import shared_kernel
    from gemmgen.runtime import device as devices

    gpu = devices.current() if device == HOST else devices.get(device)
    sms = 132 if gpu is None else gpu.sms
    spec = called(dtype, out, size, orders, sms, "" if gpu is None or batched else gpu.arch)
    return shared_kernel(spec, "sim", None, PATIENCE) if gpu is None else shared_kernel(spec, "cuda", gpu.arch, None)


def called(
    dtype: DType, out: DType, size: tuple[int, int, int], orders: tuple[Order, Order, Order], sms: int, arch: str
) -> Spec:
    """The spec that ``matmul`` calls on a GPU of an architecture: of warp groups where those have enough tiles."""
    grouped = arch == groups.ARCH
    wide = groups.group_spec(dtype, out, size, orders, sms, "matmul") if grouped else None
    return wide or spec_for(dtype, out, size, orders, sms)


def spec_for(
    dtype: DType, out: DType, size: tuple[int, int, int], orders: tuple[Order, ...], sms: int, name: str = "matmul"
) -> Spec:
    """The spec for a shape: that of which the fewest rounds of blocks are needed, weighed by how fast a round is."""
    tile, split = min(_candidates(size), key=lambda c: _seconds(c, size, sms))
    bm, bn, bk = tile.block
    step = bk * 2 // dtype.bytes
    a, b, c = orders
    return Spec(
        name=name,
        block=(bm, bn, step),
        warp=tile.warp,
        use=frozenset(
            {
                "coalescing",
                "smem",
                "float4",
                "warptile",
                "ldmatrix",
                "smemSwizzle",
                "cpasync",
                "prefetch",
                "raggedFirst",
                "stageC",
            }
        ),
        A=Operand(dtype.name, a),
        B=Operand(dtype.name, b),
        C=Operand(out.name, c),
        math="mma 16x8x8" if dtype == TF32 else "mma 16x8x16",
        stages=tile.stages,
        split_k=split,
        cta_swizzle=8 if size[0] > 8 * bm else 0,
    ).replace()


def _candidates(size: tuple[int, int, int]) -> Iterator[tuple[Tile, int]]:
    for tile in TILES:
        for split in PARTS_OF_K:
            if split == 1 or size[2] >= LEAST_STEPS * split * tile.block[2]:
                yield tile, split


def _seconds(candidate: tuple[Tile, int], size: tuple[int, int, int], sms: int) -> float:
    """Roughly how long a candidate takes: only the order of two matters."""
    tile, split = candidate
    (bm, bn, bk), (m, n, k) = tile.block, size
    blocks = ceil(m / bm) * ceil(n / bn) * split
    steps = ceil(k / split / bk)
    here = min(tile.per_sm, max(1, ceil(blocks / sms)))
    rounds = ceil(blocks / (sms * here))
    rate = tile.rate * (0.55 + 0.45 * here / tile.per_sm)
    work = 2 * bm * bn * bk * steps * here / (4.4e12 * rate)
    added = SPLIT_S + m * n * F32.bytes * (split + 1) / 3.5e12 if split > 1 else 0.0
    return OVERHEAD_S + rounds * (work + STEP_S * tile.stages) + added


def out_type(dtype: DType, out_dtype: Any, C: Any) -> DType:
    """The type of C: that of a C that is given, else ``out_dtype``, else A's own. Raises ArgumentError for others."""
    given = out_dtype if C is None else getattr(C, "dtype", None)
    name = str(given).rpartition(".")[2] if given is not None else ""
    own = F32 if dtype == TF32 else dtype
    found = own if given is None else next((t for t in ELEMENT_TYPES.values() if name in (t.name, t.numpy)), None)
    if found not in (own, F32):
        raise ArgumentError(f"C of {name} from A and B of {dtype}; it can be {own.numpy} or {F32.numpy}")
    assert found is not None
    return found


def forget_tensor() -> None:
    """Choose anew at the next calls."""
    _kernel.cache_clear()
