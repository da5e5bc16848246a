"""``gemmgen bench --suite bf16|f16|tf32``: gemmgen.matmul by tensor cores beside cuBLAS of the same types.

``bf16-nt`` and the others with ``-nt`` have B by columns, as ``x @ weight.T`` has. ``bf16x6`` and ``tf32x3`` multiply
float32 part by part, beside cuBLAS in float32; ``f32split`` is the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmgen.ir.types import DType, Order
    from gemmgen.report.suite import Broken, Row
    from gemmgen.runtime.typed import TypedCublas

PARTS = {"f32split": "bf16x6", "bf16x6": "bf16x6", "tf32x3": "tf32x3"}
"""The suites of float32 by tensor cores, and the precision of each."""
TENSOR_SUITES = ("bf16", "f16", "tf32", "bf16-nt", "f16-nt", "tf32-nt", *PARTS, *(f"{x}-nt" for x in PARTS))
"""The types; their shapes are those of the suite of float32."""


def rows_of(
    name: str, shapes: Sequence[tuple[int, int, int]], progress: Callable[[str], None]
) -> tuple[str, list[Row | Broken]]:
    """What cuBLAS is, and a row for every shape. A kernel that is wrong or fails is a row that says so."""
    from gemmgen.diagnostics import GemmgenError
    from gemmgen.ir.types import ELEMENT_TYPES, F32, TF32
    from gemmgen.report.suite import Broken
    from gemmgen.runtime.baseline import BaselineError
    from gemmgen.runtime.device import required
    from gemmgen.runtime.typed import TypedCublas

    kind, _, layout = name.partition("-")
    dtype = F32 if kind in PARTS else ELEMENT_TYPES[kind]
    precision = PARTS.get(kind, "tf32" if dtype == TF32 else "exact")
    order: Order = "col" if layout else "row"
    types = (dtype, dtype, F32 if dtype == TF32 else dtype)
    cublas = TypedCublas(required(), types)
    rows: list[Row | Broken] = []
    try:
        for shape in shapes:
            progress("x".join(map(str, shape)))
            try:
                rows.append(_compare(shape, types, order, precision, cublas))
            except BaselineError:
                raise
            except GemmgenError as error:
                rows.append(Broken(shape, " ".join(str(error).split())[:300]))
        return cublas.description, rows
    finally:
        cublas.close()


def _compare(
    shape: tuple[int, int, int], types: tuple[DType, DType, DType], order: Order, precision: str, cublas: TypedCublas
) -> Row:
    """One shape, both sides in one run, B by rows or by columns."""
    from gemmgen.dispatch.matmul import matmul
    from gemmgen.dispatch.select import Choice
    from gemmgen.dispatch.split import split_spec
    from gemmgen.dispatch.tensor import called
    from gemmgen.ir.split import SPLITS
    from gemmgen.report.suite import Row
    from gemmgen.runtime.timing import KernelSide, bench

    device = cublas.device
    orders: tuple[Order, Order, Order] = "row", order, "row"
    if precision in SPLITS:
        spec = split_spec(precision, shape, orders, device.sms)
    else:
        spec = called(types[0], types[2], shape, orders, device.sms, device.arch)

    def product(A: object, B: object, C: object, alpha: float, beta: float, stream: int) -> None:
        matmul(A, B, C, alpha, beta, stream, precision=precision)

    done = bench(
        [KernelSide("gemmgen.matmul", product), cublas], shape, warm=True, types=types, orders=("row", order, "row")
    )
    return Row(done, Choice(spec, "model"))
