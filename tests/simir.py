"""Small kernel IRs built by hand: one thread's program around a few shared and register arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gemmgen.ir.expr import Const, Expr, Var, lift
from gemmgen.ir.kernel import KernelIR, Param, Source
from gemmgen.ir.nodes import Alloc, Array, Load, Ref, Stmt, Store
from gemmgen.launch import EXACT
from gemmgen.sim.run import DEFAULT, GlobalArray, Options, RunResult, run_kernel

A = Array("A", "global", shape=None, const=True)
B = Array("B", "global", shape=None, const=True)
C = Array("C", "global", shape=None)
BETA = Var("beta", dtype="f32", uniform=True)
X = Var("blockIdx.x", uniform=True)
LINES = {"tile block": 2, "use float4": 5}


def tid(threads: int = 32) -> Var:
    return Var("threadIdx.x", 0, threads - 1)


def shared(name: str, *shape: int, align: int = 16) -> Array:
    return Array(name, "shared", shape=tuple(map(Const, shape)), align=align)


def register(name: str, *shape: int) -> Array:
    return Array(name, "register", shape=tuple(map(Const, shape)))


def at(memory: Array, *index: Expr | int) -> Ref:
    return Ref(memory, tuple(lift(i) for i in index))


R = register("r")
QUAD = register("quad", 4)


def put(dst: Ref, value: float = 1.0) -> tuple[Stmt, ...]:
    """Write a value to memory."""
    return Alloc(R, value), Store(dst, at(R), origin="tile block")


def get(src: Ref, width: int = 1) -> tuple[Stmt, ...]:
    """Read from memory into a register."""
    dst = R if width == 1 else QUAD
    return Alloc(dst), Load(at(dst, *([0] * len(dst.shape or ()))), src, width, origin="use float4")


def kernel(*body: Stmt | Sequence[Stmt], threads: int = 32, arrays: tuple[Array, ...] = ()) -> KernelIR:
    """A kernel of the given statements (or sequences of them)."""
    flat: list[Stmt] = []
    for s in body:
        flat.extend(s) if isinstance(s, Sequence) else flat.append(s)
    source = Source(("kernel hand", "tile block 32x32x8"), "hand.gemm", tuple(LINES.items()))
    params = (Param("alpha", "float"), Param("beta", "float"))
    one = Const(1)
    return KernelIR(
        "hand",
        EXACT,
        "",
        (),
        (),
        params,
        threads,
        (one, one, one),
        arrays,
        tuple(flat),
        tile=(32, 32, 8),
        source=source,
    )


def run(
    ir: KernelIR,
    a: NDArray[np.float32] | GlobalArray | None = None,
    c: NDArray[np.float32] | GlobalArray | None = None,
    blocks: int = 1,
    options: Options = DEFAULT,
    **scalars: float,
) -> RunResult:
    """Run with flat A and C (of one row); their length says how far the kernel may go."""
    given = {name: x if isinstance(x, GlobalArray) else GlobalArray(zeros(64) if x is None else x)
             for name, x in (("A", a), ("C", c))}  # fmt: skip
    arrays = {
        name: x if x.extent is not None else GlobalArray(x.data, x.offset, x.alignment, x.data.size - x.offset)
        for name, x in given.items()
    }
    sizes = {"M": 1, "N": 64, "K": 64, "alpha": 1.0, "beta": 0.0, "lda": 64, "ldb": 64, "ldc": 64}
    return run_kernel(ir, (blocks, 1, 1), sizes | scalars, arrays, options)


def zeros(n: int) -> NDArray[np.float32]:
    return np.zeros(n, np.float32)


def ramp(n: int) -> NDArray[np.float32]:
    return np.arange(n, dtype=np.float32)
