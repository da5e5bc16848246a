"""What the printer leaves out, joins, breaks and keeps apart, on small kernels built by hand."""

from __future__ import annotations

from host_cuda.samples import COUNTER, LDA, THREAD, A, C, K, M, N, body_of, kernel, loop

from gemmgen.cuda.emit import emit_cuda, emit_with_lines
from gemmgen.cuda.layout import WIDTH, Line, arranged
from gemmgen.ir.expr import Const, Var, smaller
from gemmgen.ir.kernel import Constant
from gemmgen.ir.nodes import (
    Alloc,
    Array,
    Call,
    Compute,
    FBin,
    FConst,
    FExpr,
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
    Store,
    Sync,
    edit,
)
from gemmgen.isa.table import Instruction


def test_a_loop_that_runs_once_is_its_body() -> None:
    acc = Array("acc", "register", shape=(Const(4),))
    one = loop(Const(1, "TM"), Compute(Ref(acc, (COUNTER,)), FConst(1.0)))
    assert body_of(Alloc(acc), one) == ["float acc[4];", "acc[0] = 1.0f;"]


def test_a_loop_that_never_runs_is_left_out_and_its_accesses_keep_their_numbers() -> None:
    x = Array("x", "register")
    load = Load(Ref(x), Ref(A, (THREAD,)))
    emitted = emit_with_lines(kernel((Alloc(x), loop(Const(0), load), load)))
    assert set(emitted.lines) == {1}
    assert emitted.text.splitlines()[emitted.lines[1] - 1] == "    x = A[threadIdx.x];"


def test_names_may_be_declared_twice() -> None:
    x = Array("x", "register")
    again = Fma(Ref(x), Ref(x), Ref(x))
    use = (Alloc(x), Load(Ref(x), Ref(A, (COUNTER,))), again, Store(Ref(C, (COUNTER,)), Ref(x)))
    block = ["{", "    float x = A[0];", "    x += x * x;", "    C[0] = x;", "}"]
    once = loop(Const(1), *use)
    assert body_of(once, once) == 2 * block
    at_0 = tuple(edit((once,), lambda s: s.body if isinstance(s, For) else (s,)))
    assert [line.replace("[i]", "[0]") for line in body_of(*at_0, *at_0, Sync(0, "x"))] == [
        *2 * block,
        "__syncthreads();  // x",
    ]


def test_a_group_in_braces_holds_all_that_its_names_lead_to() -> None:
    i, row, x = Var("i"), Var("row"), Array("x", "register")
    tile = Pointer("tile", A, row * LDA)
    part = (
        Let(i, THREAD + 1),
        Let(row, i * 2),
        LetPointer(tile),
        Alloc(x),
        Load(Ref(x), Ref(tile, (Const(1),)), guard=i.lt(M)),
        Fma(Ref(x), Ref(x), Ref(x)),
        If(Var("beta", dtype="f32").ne(0), (Store(Ref(C, (Const(1),)), Ref(x)),)),
    )
    block = [
        "{",
        "    const int i = threadIdx.x + 1;",
        "    const int row = i * 2;",
        "    const float* tile = A + row * lda;",
        "    float x = i < M ? tile[1] : 0.0f;",
        "    x += x * x;",
        "    if (beta != 0.0f) C[1] = x;",
        "}",
    ]
    assert body_of(*part, *part, Sync(0, "x")) == [*block, *block, "__syncthreads();  // x"]


def test_a_copy_is_one_statement_unless_its_registers_are_used_again() -> None:
    x = Array("x", "register", shape=(Const(4),))
    whole = Ref(x, (Const(0),))
    copy = (Alloc(x), Load(whole, Ref(A, (THREAD * 4,)), 4), Store(Ref(C, (THREAD * 4,)), whole, 4))
    emitted = emit_with_lines(kernel(copy))
    lines = emitted.text.splitlines()
    assert lines[emitted.lines[0] - 1] == "    as_float4(&C[threadIdx.x * 4]) = as_float4(&A[threadIdx.x * 4]);"
    assert emitted.lines[0] == emitted.lines[1]
    assert len(body_of(*copy, *copy)) == len(body_of(*copy, loop(Const(4), *copy))) - 1 == 2
    long = Load(whole, Ref(A, (THREAD * LDA + smaller(THREAD, M - 1),)), 4, THREAD.lt(M))
    emitted = emit_with_lines(kernel((copy[0], long, copy[2])))
    lines = emitted.text.splitlines()
    assert lines[emitted.lines[0] - 1] == "        ? as_float4(&A[threadIdx.x * lda + min(threadIdx.x, M - 1)])"
    assert lines[emitted.lines[1] - 1] == "    as_float4(&C[threadIdx.x * 4]) = threadIdx.x < M"
    assert len(body_of(*copy, Store(Ref(C, (THREAD,)), Ref(x, (Const(1),))))) == 4
    assert len(body_of(copy[0], copy[1], Store(Ref(C, (THREAD * 4,)), whole, 2))) == 3


def test_a_product_of_two_loads_is_one_statement_unless_they_are_used_again() -> None:
    x, y, acc = (Array(name, "register") for name in ("x", "y", "acc"))
    term = (
        Alloc(x),
        Load(Ref(x), Ref(A, (THREAD,))),
        Alloc(y),
        Load(Ref(y), Ref(C, (THREAD,))),
        Fma(Ref(acc), Ref(x), Ref(y)),
    )
    assert body_of(Alloc(acc, 0.0), *term) == ["float acc = 0.0f;", "acc += A[threadIdx.x] * C[threadIdx.x];"]
    assert len(body_of(*term, Fma(Ref(acc), Ref(x), Ref(acc)))) == 4


def test_a_value_loaded_for_one_computation_has_no_name() -> None:
    old, out = Array("old", "register"), Array("out", "register")
    load = (Alloc(old), Load(Ref(old), Ref(C, (THREAD,))))

    def blend(*terms: FExpr) -> Compute:
        e: FExpr = Read(Ref(out))
        for term in terms:
            e = FBin("+", e, term)
        return Compute(Ref(out), e)

    term = FBin("*", Scalar("beta"), Read(Ref(old)))
    assert body_of(*load, blend(term)) == ["out += beta * C[threadIdx.x];"]
    assert body_of(*load, blend(term, Read(Ref(old)))) == [
        "const float old = C[threadIdx.x];",
        "out = out + beta * old + old;",
    ]
    assert len(body_of(*load, blend(term), Store(Ref(C, (Const(0),)), Ref(old)))) == 3


def test_scalars_are_declared_where_they_get_their_value() -> None:
    x = Array("x", "register")
    double = Compute(Ref(x), FBin("*", Read(Ref(x)), FConst(2.0)))
    assert body_of(Alloc(x), Compute(Ref(x), Scalar("alpha")), double) == ["float x = alpha;", "x *= 2.0f;"]
    assert body_of(Alloc(x), Compute(Ref(x), Scalar("alpha"))) == ["const float x = alpha;"]
    assert body_of(Alloc(x, 0.0), Compute(Ref(x), Scalar("alpha"))) == ["float x = 0.0f;", "x = alpha;"]


def test_branches_that_are_known_are_not_branches() -> None:
    x = Array("x", "register")
    loads = [Load(Ref(x), Ref(A, (Const(i),))) for i in range(4)]
    never, always = If(Const(0), (loads[0],), (loads[1],)), If(Const(1), (loads[2],), (loads[3],), "not printed")
    emitted = emit_with_lines(kernel((Alloc(x), never, always)))
    shown = emitted.text.splitlines()
    assert {number: shown[at - 1].strip() for number, at in emitted.lines.items()} == {1: "x = A[1];", 2: "x = A[2];"}
    assert "if" not in emitted.text.split("ldc)")[1] and "not printed" not in emitted.text
    use = (Alloc(x), loads[0], Fma(Ref(x), Ref(x), Ref(x)))
    assert len(body_of(If(Const(1), use), If(Const(1), use))) == 2 * 4


def test_long_calls_and_declarations_are_broken_between_their_parts() -> None:
    row = Instruction("copy_of_sixteen_bytes", "", None)
    far = Ref(A, (smaller(THREAD, M - 1) * LDA + smaller(THREAD * 4 + 128, N - 4),))
    assert body_of(Call(row, (far, far, THREAD.lt(K)))) == [
        "copy_of_sixteen_bytes(&A[min(threadIdx.x, M - 1) * lda + min(threadIdx.x * 4 + 128, N - 4)],",
        "    &A[min(threadIdx.x, M - 1) * lda + min(threadIdx.x * 4 + 128, N - 4)],",
        "    threadIdx.x < K);",
    ]
    assert body_of(Call(row, ())) == ["copy_of_sixteen_bytes();"]
    name = Var("theNumberOfTheRowAndColumn" * 2)
    x = Array("x", "register")
    use = Load(Ref(x), Ref(A, (name,)))
    assert body_of(Let(name, smaller(THREAD * 4 + 128, N - 4) + smaller(THREAD, M - 1)), use)[:2] == [
        f"const int {name.name} =",
        "    min(threadIdx.x * 4 + 128, N - 4) + min(threadIdx.x, M - 1);",
    ]


def test_comments_stand_in_one_column_or_above() -> None:
    lines = [Line(0, "int a;", "first"), Line(0, "float bb;", "second"), Line(0, "x" * 100, "a comment without room")]
    assert [p.text for p in arranged(lines)] == [
        "int a;     // first",
        "float bb;  // second",
        "// a comment without room",
        "x" * 100,
    ]
    lines = [Line(0, "int a;", "first"), Line(0, "y" * 90, "second"), Line(0, "int bb;", "third " * 8)]
    assert [p.text.index("//") for p in arranged(lines)] == [9, 92, 9]
    long = [p.text for p in arranged([Line(1, "", "word " * 60)])]
    assert len(long) > 1 and all(len(t) <= WIDTH and t.startswith("    // word") for t in long)


def test_constants_that_nothing_refers_to_are_left_out() -> None:
    one = Constant("STRIDE", 1, "BM / 8", "rows of one pass")
    constants = (Constant("BM", 8, "8", "rows"), one, Constant("BN", 8, "8", "columns"))
    assert "constexpr" not in emit_cuda(kernel((), constants=constants))
    acc = Array("acc", "register")
    steps = For(COUNTER, Const(0), Const(4), one.expr, (Fma(Ref(acc), Ref(acc), Ref(acc)),))
    text = emit_cuda(kernel((steps,), constants=constants))
    assert "constexpr int BM = 8;           // rows\nconstexpr int STRIDE = BM / 8;  // rows of one pass\n\n" in text
    assert "for (int i = 0; i < 4; i += STRIDE) acc" in text


def test_names_that_nothing_uses_are_left_out() -> None:
    row, twice = Var("row"), Var("twice")
    assert body_of(Let(row, THREAD // 4), Let(twice, row * 2), LetPointer(Pointer("tileA", A, row * LDA))) == []
    pointer = Pointer("tileA", A, row * LDA)
    x = Array("x", "register")
    use = Load(Ref(x), Ref(pointer, (Const(1),)))
    assert len(body_of(Let(row, THREAD // 4), Let(twice, row * 2), LetPointer(pointer), use)) == 3
