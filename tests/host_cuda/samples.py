"""Small kernels built by hand, to try the printer on what the ladder does not hold."""

from __future__ import annotations

import re

from gemmgen.cuda.emit import emit_cuda
from gemmgen.cuda.first import FIRST
from gemmgen.ir.expr import Const, Expr, Var, both, smaller
from gemmgen.ir.kernel import Constant, KernelIR, Param, Source
from gemmgen.ir.nodes import (
    Alloc,
    Array,
    Compute,
    FBin,
    Fma,
    For,
    If,
    Let,
    LetPointer,
    Load,
    Pointer,
    Read,
    Ref,
    Scalar,
    Section,
    Stmt,
    Store,
    Sync,
)
from gemmgen.launch import EXACT
from gemmgen.spec.model import Spec

A = Array("A", "global", shape=None, const=True)
B = Array("B", "global", shape=None, const=True)
C = Array("C", "global", shape=None)
M, N, K = (Var(name, 0, None, uniform=True) for name in "MNK")
LDA, LDB, LDC = (Var(name, 0, None, uniform=True, dtype="i64") for name in ("lda", "ldb", "ldc"))
THREAD = Var("threadIdx.x", 0, 31)
BLOCK_X, BLOCK_Y = Var("blockIdx.x", uniform=True), Var("blockIdx.y", uniform=True)
COUNTER = Var("i", 0, 3, uniform=True)
PARAMS = (
    Param("M", "int"),
    Param("N", "int"),
    Param("K", "int"),
    Param("alpha", "float"),
    Param("A", "pointer", A),
    Param("lda", "size"),
    Param("B", "pointer", B),
    Param("ldb", "size"),
    Param("beta", "float"),
    Param("C", "pointer", C),
    Param("ldc", "size"),
)


def kernel(
    body: tuple[Stmt, ...],
    *,
    name: str = "sample",
    constants: tuple[Constant, ...] = (),
    shared: tuple[Array, ...] = (),
    threads: int = 32,
    spec: Spec | None = None,
    summary: str = "A sample. It is small.",
) -> KernelIR:
    """A kernel with the usual parameters around a body."""
    spec = spec or Spec(name=name, block=(8, 8, 4), thread=(2, 1))
    source = Source(tuple(spec.to_text(comment=False).splitlines()), f"{spec.name}.gemm")
    grid: tuple[Expr, Expr, Expr] = (Const(1), Const(1), Const(1))
    return KernelIR(
        name, EXACT, summary, constants, (), PARAMS, threads, grid, shared, body,
        tile=spec.block, main=spec.name, source=source,
    )  # fmt: skip


def tiled(*, rows: int = 8, guarded: bool = True) -> KernelIR:
    """8x8 of C in a block of 64 threads, K in steps of 4, through shared memory that is ``rows`` rows large.

    More rows than 8 only make the tile of A larger than it need be.
    """
    sizes = (("BM", rows, "rows"), ("BN", 8, "columns"), ("BK", 4, "step"))
    bm, bn, bk = (Constant(name, value, str(value), why) for name, value, why in sizes)
    thread = Var("threadIdx.x", 0, 63)
    shared = (Array("As", "shared", shape=(bm.expr, bk.expr)), Array("Bs", "shared", shape=(bk.expr, bn.expr)))
    row, col, k0, k = Var("row", 0, 7), Var("col", 0, 7), Var("k0", 0, None, uniform=True), Var("k", 0, 3, uniform=True)
    tile_a = Pointer("tileA", A, k0)
    a, b, acc = (Array(name, "register") for name in ("a", "b", "acc"))
    in_k = (k0 + col).lt(K) if guarded else None
    block_row, block_col = BLOCK_Y * 8, BLOCK_X * bn.expr
    stage_a = If(
        col.lt(4),
        (
            Alloc(a),
            Load(Ref(a), Ref(tile_a, (smaller(block_row + row, M - 1) * LDA + col,)), guard=in_k),
            Store(Ref(shared[0], (row, col)), Ref(a)),
        ),
    )
    stage_b = If(
        row.lt(4),
        (
            Alloc(b),
            Load(
                Ref(b),
                Ref(B, ((k0 + row) * LDB + smaller(block_col + col, N - 1),)),
                guard=(k0 + row).lt(K) if guarded else None,
            ),
            Store(Ref(shared[1], (row, col)), Ref(b)),
        ),
    )
    inner = For(
        k,
        Const(0),
        bk.expr,
        Const(1),
        (
            Alloc(a),
            Load(Ref(a), Ref(shared[0], (row, k))),
            Alloc(b),
            Load(Ref(b), Ref(shared[1], (k, col))),
            Fma(Ref(acc), Ref(a), Ref(b)),
        ),
        unroll=True,
    )
    loop = For(
        k0,
        Const(0),
        K,
        bk.expr,
        (LetPointer(tile_a), stage_a, stage_b, Sync(0, "written, then read"), inner, Sync(1, "read, then overwritten")),
    )
    out, old = Array("out", "register"), Array("old", "register")
    place = ((block_row + row) * LDC + (block_col + col),)
    inside = both((block_row + row).lt(M), (block_col + col).lt(N))
    finish: tuple[Stmt, ...] = (
        Alloc(out),
        Compute(Ref(out), FBin("*", Scalar("alpha"), Read(Ref(acc)))),
        If(
            both(Var("beta", dtype="f32", uniform=True).ne(0), inside),
            (
                Alloc(old),
                Load(Ref(old), Ref(C, place)),
                Compute(Ref(out), FBin("+", Read(Ref(out)), FBin("*", Scalar("beta"), Read(Ref(old))))),
            ),
        ),
        Store(Ref(C, place), Ref(out), guard=inside),
    )
    body: tuple[Stmt, ...] = (
        Section(
            "Placement",
            (Let(row, thread // bn.expr, "row"), Let(col, thread % bn.expr, "column"), Alloc(acc, 0.0)),
            "which element this thread computes",
        ),
        Section("Main loop", (loop,)),
        Section("Epilogue", finish),
    )
    return kernel(body, name="tiled", constants=(bm, bn, bk), shared=shared, threads=64)


def body_of(*statements: Stmt, **how: object) -> list[str]:
    """The lines between the kernel's braces, without the outer indentation, and without what explains a word of CUDA
    above its first use."""
    text = emit_cuda(kernel(statements, **how))  # type: ignore[arg-type]
    inside = text[text.index("ldc)\n{\n") + 7 : text.rindex("}")]
    for _, said in FIRST:
        inside = _without(inside, said)
    return [line[4:] for line in inside.splitlines()]


def _without(inside: str, said: str) -> str:
    """Without a comment that is broken into lines."""
    words = r"\s+(?://\s+)?".join(map(re.escape, said.split()))
    return re.sub(rf" *// {words}\n", "", inside, count=1)


def loop(stop: Const, *body: Stmt, unroll: bool | int | None = True, why: str = "") -> For:
    return For(COUNTER, Const(0), stop, Const(1), body, unroll, why)
