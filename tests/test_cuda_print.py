"""The printer on small kernels built by hand: how each kind of statement and type is written."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from host_cuda.samples import LDA, THREAD, A, C, K, M, N, body_of, kernel, loop, tiled

import gemmgen
from gemmgen.cuda.emit import emit_cuda, emit_with_lines
from gemmgen.cuda.layout import sanitised
from gemmgen.cuda.terms import expression, number
from gemmgen.ir.expr import Const, Var, select, smaller
from gemmgen.ir.kernel import Assertion, Constant, Param
from gemmgen.ir.nodes import (
    Alloc,
    Array,
    Call,
    Compute,
    FBin,
    FConst,
    Fma,
    If,
    Let,
    Load,
    Pinned,
    Ref,
    Role,
    Roles,
    Scalar,
    Section,
    Store,
    Sync,
)
from gemmgen.ir.types import U64
from gemmgen.isa.table import Instruction
from gemmgen.lower import lower
from gemmgen.spec.model import Spec
from gemmgen.spec.parse import parse


def test_unroll_is_printed_as_asked() -> None:
    acc = Array("acc", "register")
    add = Fma(Ref(acc), Ref(acc), Ref(acc))
    head = "for (int i = 0; i < 4; ++i) acc += acc * acc;"
    for unroll, pragma in ((True, "#pragma unroll"), (2, "#pragma unroll 2"), (False, "#pragma unroll 1")):
        assert body_of(loop(Const(4), add, unroll=unroll)) == [pragma, head]
    assert body_of(loop(Const(4), add, unroll=None)) == [head]


def test_vector_accesses_align_their_registers_and_name_only_the_helpers_used() -> None:
    four = Array("four", "register", shape=(Const(8),))
    load = Load(Ref(four, (Const(4),)), Ref(A, (THREAD * 4,)), 4)
    text = emit_cuda(kernel((Alloc(four), load)))
    assert "    alignas(16) float four[8];" in text
    assert "    as_float4(&four[4]) = as_float4(&A[threadIdx.x * 4]);" in text
    assert text.count("as_float4(float* p)") == text.count("as_float4(const float* p)") == 1
    assert "as_float2" not in text
    back = Store(Ref(C, (THREAD * 2,)), Ref(four, (Const(0),)), 2)
    text = emit_cuda(kernel((Alloc(four), back)))
    assert "    as_float2(&C[threadIdx.x * 2]) = as_float2(four);" in text
    assert "as_float4" not in text and "const float* p" not in text
    assert "as_float" not in emit_cuda(kernel(()))


def test_guards_select_zero_or_skip_the_store_and_long_ones_are_broken() -> None:
    x, inside = Array("x", "register", shape=(Const(4),)), THREAD.lt(M)
    assert body_of(Store(Ref(C, (THREAD,)), Ref(x, (Const(0),)), guard=inside)) == [
        "if (threadIdx.x < M) C[threadIdx.x] = x[0];"
    ]
    assert body_of(Load(Ref(x, (Const(1),)), Ref(A, (THREAD,)), guard=inside)) == [
        "x[1] = threadIdx.x < M ? A[threadIdx.x] : 0.0f;"
    ]
    assert body_of(Load(Ref(x, (Const(0),)), Ref(A, (THREAD * LDA + smaller(THREAD, M - 1),)), 4, inside)) == [
        "as_float4(x) = threadIdx.x < M",
        "    ? as_float4(&A[threadIdx.x * lda + min(threadIdx.x, M - 1)])",
        "    : float4{0.0f, 0.0f, 0.0f, 0.0f};",
    ]


def test_float_expressions_keep_the_order_of_rounding() -> None:
    x = Array("x", "register")
    a, b, c = (Scalar(name) for name in ("alpha", "beta", "alpha"))
    assert body_of(Compute(Ref(x), FBin("+", a, FBin("+", b, c)))) == ["x = alpha + (beta + alpha);"]
    assert body_of(Compute(Ref(x), FBin("+", FBin("+", a, b), c))) == ["x = alpha + beta + alpha;"]
    assert body_of(Compute(Ref(x), FBin("*", FBin("+", a, b), c))) == ["x = (alpha + beta) * alpha;"]
    assert body_of(Compute(Ref(x), FBin("max", FBin("+", a, b), FConst(0.0)))) == ["x = fmaxf(alpha + beta, 0.0f);"]


def test_numbers_are_float_literals() -> None:
    values = {0.0: "0.0f", 1.0: "1.0f", -2.5: "-2.5f", 1e-30: "1e-30f", 16777216.0: "16777216.0f"}
    assert {v: number(v) for v in values} == values
    assert number(float("inf")) == "__int_as_float(0x7f800000)"


def test_g28_products_and_minima_are_computed_in_64_bits_where_they_can_pass_32() -> None:
    row = Var("row", 0, 127)
    assert expression(M * N, {}) == "(size_t)M * N"
    assert expression((row + M) * N, {}) == "(size_t)(row + M) * N"
    assert expression(row * LDA + K, {}) == "row * lda + K"
    assert expression(row * 4, {}) == "row * 4"
    assert expression(smaller(K, LDA), {}) == "min((size_t)K, lda)"
    assert expression(smaller(LDA, row + K), {}) == "min(lda, (size_t)(row + K))"


def test_conditions_on_beta_compare_with_a_float() -> None:
    beta = Var("beta", dtype="f32", uniform=True)
    assert body_of(If(beta.ne(0), (Sync(0, "x"),))) == ["if (beta != 0.0f) {", "    __syncthreads();  // x", "}"]


def test_branches_and_roles() -> None:
    x = Array("x", "register")
    set_x = (Compute(Ref(x), FConst(1.0)),)
    assert body_of(If(THREAD.lt(4), set_x, set_x, "why")) == [
        "// why", "if (threadIdx.x < 4) {", "    x = 1.0f;", "} else {", "    x = 1.0f;", "}",
    ]  # fmt: skip
    roles = Roles((Role("load", 0, 0, set_x), Role("compute", 1, 4, set_x)))
    assert body_of(roles) == [
        "if (threadIdx.x < 32) {  // load: warps 0 to 0", "    x = 1.0f;",
        "} else {  // compute: warps 1 to 4", "    x = 1.0f;", "}",
    ]  # fmt: skip


def test_a_hardware_operation_brings_its_helper_once() -> None:
    row = Instruction("pause", "__device__ void pause(float* p, int n) { __nanosleep(n); }")
    tile = Array("As", "shared", shape=(Const(4), Const(8)))
    call = Call(row, (Ref(tile, (Const(1), THREAD)), Const(7)))
    text = emit_cuda(kernel((call, call), shared=(tile,)))
    assert text.count(row.helper) == 1
    assert text.count("    pause(&As[1][threadIdx.x], 7);") == 2


def test_shared_memory_above_48_kb_is_dynamic_and_aligned_tiles_come_first() -> None:
    odd = Array("As", "shared", shape=(Const(3, "BM"), Const(5, "BK")))
    even = Array("Bs", "shared", shape=(Const(128, "BK"), Const(128, "BN")), align=16)
    text = emit_cuda(kernel((), shared=(odd, even)))
    assert "    extern __shared__ __align__(16) float dynamicShared[];\n" in text
    assert "    float (*Bs)[BN] = reinterpret_cast<float (*)[BN]>(dynamicShared);\n" in text
    assert "    float (*As)[BK] = reinterpret_cast<float (*)[BK]>(dynamicShared + BK * BN);\n" in text
    assert "    __shared__ float As[BM][BK];\n" in emit_cuda(kernel((), shared=(odd,)))


def test_constants_and_assertions() -> None:
    ir = kernel((), constants=(Constant("BM", 8, "8", "rows"), Constant("THREADS", 32, "4 * BM", "threads")))
    ir = replace(ir, assertions=(Assertion("BM % 4 == 0", 'rows in "fours"'),), min_blocks=2)
    text = emit_cuda(ir)
    assert "constexpr int BM = 8;            // rows\nconstexpr int THREADS = 4 * BM;  // threads\n" in text
    assert 'static_assert(BM % 4 == 0, "rows in \\"fours\\"");' in text
    assert "__launch_bounds__(THREADS, 2)\nsample(int M" in text


HOSTILE = ["tile A\\", "tile A\\ \t", "a */ b", "/* a", "what??/", "x\rint y;", "x\u2028y", "\u202e"]


@pytest.mark.parametrize("text", HOSTILE)
def test_s1_text_of_a_spec_stays_in_its_comment(text: str) -> None:
    safe = sanitised(text)
    assert not safe.endswith("\\") and "*/" not in safe and "/*" not in safe and "??" not in safe
    assert safe.isprintable() and len(safe.splitlines()) <= 1
    spec = Spec(name="sample", block=(8, 8, 4), comment=text)
    plain = emit_cuda(kernel((), spec=replace(spec, comment="")))
    written = emit_cuda(kernel((), spec=spec, summary=f"About {text}"))
    long = emit_cuda(kernel((), spec=spec, summary="word\\ " * 60))
    assert all(not line.endswith("\\") for line in long.split("\n"))
    code = [line for line in written.split("\n") if not line.startswith("//")]
    assert code == [line for line in plain.split("\n") if not line.startswith("//")]


def test_s1_greek_letters_are_kept() -> None:
    assert sanitised("μ = αβ  # 日本") == "μ = αβ  # 日本"


def test_lines_of_accesses() -> None:
    emitted = emit_with_lines(tiled())
    lines = emitted.text.splitlines()
    assert sorted(emitted.lines) == list(range(8))
    shown = [lines[emitted.lines[k] - 1].strip() for k in range(8)]
    assert shown[0] == shown[1] and shown[0].startswith("if (col < 4) As[row][col] = k0 + col < K ?")
    assert shown[2] == shown[3] and shown[2].startswith("Bs[row][col] = k0 + row < K ? B[")
    assert shown[4] == shown[5] == "for (int k = 0; k < BK; ++k) acc += As[row][k] * Bs[k][col];"
    assert shown[6].startswith("out += beta * C[")
    assert shown[7] == "C[(blockIdx.y * 8 + row) * ldc + blockIdx.x * BN + col] = out;"
    assert lines[emitted.lines[7] - 2].strip() == "if (blockIdx.y * 8 + row < M && blockIdx.x * BN + col < N)"


def test_a_let_takes_the_type_of_its_variable() -> None:
    row, wide = Var("row"), Var("offset", dtype="i64")
    x = Array("x", "register")
    load = Load(Ref(x), Ref(A, (row + wide,)))
    assert body_of(Let(row, THREAD // 4, "why"), Let(wide, THREAD * LDA), load) == [
        "const int row = threadIdx.x / 4;  // why",
        "const size_t offset = threadIdx.x * lda;",
        "x = A[row + offset];",
    ]


def test_pinned_loads_and_fused_multiply_adds_are_said_as_such() -> None:
    tile = Array("As", "shared", shape=(Const(4), Const(32)), align=16)
    x, acc = Array("x", "register", shape=(Const(4),)), Array("acc", "register")
    load = Load(Ref(x, (Const(0),)), Ref(tile, (Const(1), Const(8))), 4, pinned=True)
    again = Load(Ref(x, (Const(1),)), Ref(A, (THREAD,)), pinned=True)
    fma = Fma(Ref(acc), Ref(x, (Const(0),)), Ref(x, (Const(1),)), fused=True)
    text = emit_cuda(kernel((Alloc(x), Alloc(acc, 0.0), load, again, fma), shared=(tile,)))
    assert "    as_float4(x) = load_shared_float4(&As[0][0], 160);\n" in text
    assert "    x[1] = load_global_float(&A[threadIdx.x]);\n" in text
    assert "    acc = fmaf(x[0], x[1], acc);\n" in text
    assert 'asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"\n' in text
    assert 'asm volatile("ld.volatile.global.f32 %0, [%1];"\n                 : "=f"(v) : "l"(p));\n' in text


def test_selections() -> None:
    n = Var("n", 0, 1)
    assert expression(select(n.eq(0), THREAD, THREAD + 1), {}) == "n == 0 ? threadIdx.x : threadIdx.x + 1"
    assert expression(select(M.lt(N), M * N, 0) + 1, {}) == "(M < N ? (size_t)M * N : 0) + 1"


def test_dynamic_shared_memory_holds_other_types_and_larger_alignments() -> None:
    full = Array("full", "shared", U64, (Const(3, "STAGES"),), align=8)
    tile = Array("As", "shared", shape=(Const(128, "BM"), Const(128, "BK")), align=128)
    body = body_of(shared=(full, tile))
    assert body[1:] == [
        "extern __shared__ __align__(128) float dynamicShared[];",
        "float (*As)[BK] = reinterpret_cast<float (*)[BK]>(dynamicShared);",
        "unsigned long long* full = reinterpret_cast<unsigned long long*>(dynamicShared + BM * BK);",
    ]


def test_a_tensor_map_is_a_parameter_by_value() -> None:
    ir = kernel(())
    text = emit_cuda(replace(ir, params=(*ir.params, Param("mapA", "tensormap"))))
    assert "struct alignas(128) TensorMap { unsigned long long opaque[16]; };\n" in text
    assert "const __grid_constant__ TensorMap mapA)\n{" in text
    assert "TensorMap" not in emit_cuda(ir)


def test_a_pinned_block_is_a_loop_that_never_repeats() -> None:
    acc = Array("acc", "register")
    body = (Fma(Ref(acc), Ref(acc), Ref(acc)),)
    assert body_of(Alloc(acc, 0.0), Pinned(Const(1), body)) == [
        "float acc = 0.0f;",
        "#pragma unroll 1",
        "do {",
        "    acc += acc * acc;",
        "} while (M == -1 - 1);  // never: M is not negative",
    ]


def test_sections_are_numbered_where_they_stand_in_no_other() -> None:
    acc = Array("acc", "register")
    one = (Compute(Ref(acc), FConst(1.0)),)
    nested = Section("Copy", (Section("A", one), Section("B", one)), "from global memory")
    assert [line for line in body_of(Section("Place", one), If(THREAD.lt(4), (nested,))) if "//" in line] == [
        "// 1. Place",
        "    // 2. Copy: from global memory",
        "    // A",
        "    // B",
    ]


@pytest.mark.parametrize(
    ("block", "use", "said"),
    [
        ("32x32", "coalescing", "for M and N that are multiples of 32."),
        ("32x32x32", "smem", "for M, N and K that are multiples of 32."),
        ("64x32x8", "smem", "for M that is a multiple of 64 and N of 32 and K of 8."),
        (
            "64x64x8",
            "smem, transposeA, float4",
            "for M and N that are multiples of 64 and K of 8, and rows of A, B and C whose start and length are "
            "multiples of 16 bytes.",
        ),
        (
            "64x64x8",
            "smem, float4, cpasync",
            "for M and N that are multiples of 64 and K of 8, and rows of A, B and C whose start and length are "
            "multiples of 16 bytes.",
        ),
    ],
)
def test_the_header_says_which_sizes_and_rows_the_text_is_for(block: str, use: str, said: str) -> None:
    spec = parse(f"kernel mine\ntile block {block}\ntile thread 4x4\nuse {use}\n")
    header = emit_cuda(lower(spec)).split("\n//\n")[0]
    assert header.replace("\n// ", " ") == f"// mine, exact variant: {said}"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("specs/own.gemm", "specs/own.gemm"), ("/a/specs/own.gemm", "specs/own.gemm"), ("st.gemm", "st.gemm"),
        ("/tmp/st.gemm", "st.gemm"), ("<string>", "shortest.gemm"), ("<spec>", "shortest.gemm"),
    ],
)  # fmt: skip
def test_the_header_names_the_file_that_makes_it(file: str, said: str) -> None:
    spec = parse("kernel shortest\ntile block 8x8\n", file)
    assert f"\n// Made by: gemmgen compile {said}\n" in emit_cuda(lower(spec))


def test_a_leading_dimension_counts_rows_or_columns_as_the_matrix_lies() -> None:
    text = gemmgen.emit(gemmgen.parse("kernel mixed\noperands A f32 col, B f32, C f32 col\ntile block 16x16\n"))
    said = text.replace("\n// ", " ")
    assert "lda, ldc: elements from one column of A, C to the next; ldb: elements from one row of B to the next" in said


def test_the_header_says_how_to_launch_the_kernel() -> None:
    text = gemmgen.emit(gemmgen.load("pipelined")).replace("\n// ", " ")
    shared = gemmgen.lower(gemmgen.load("pipelined")).shared_bytes
    assert (
        f"Launch: grid ((N + 127) / 128, (M + 127) / 128, 1), 128 threads per block, {shared} bytes of dynamic shared "
        "memory, sm_90 or newer. Tensor maps (cuTensorMapEncodeTiled): mapA of A, f32, box 32 x 128 elements, "
        "no swizzle, zeros out of bounds; mapB of B, f32, box 128 x 32 elements, no swizzle, zeros out of bounds."
    ) in text


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("smem", "256 threads per block, no dynamic shared memory."),
        ("smem, float4, cpasync\nstages 3", "no dynamic shared memory, sm_80 or newer."),
        ("smem, clusterReduce\nsplit_k 4", "(M + 63) / 64, 4), 256 threads per block, clusters of 4 blocks along z"),
        ("smem\npersistent 132", "grid (min(132, (M + 63) / 64 * ((N + 63) / 64)), 1, 1)"),
    ],
)
def test_the_launch_line_has_what_the_kernel_needs(use: str, said: str) -> None:
    text = gemmgen.emit(gemmgen.parse(f"kernel mine\ntile block 64x64x16\ntile thread 4x4\nuse {use}\n"))
    assert said in text.replace("\n// ", " ")


def test_the_header_keeps_the_comments_behind_the_lines_of_the_spec() -> None:
    text = gemmgen.emit(gemmgen.parse("kernel a  # mine\n\ntile block 32x32 # the tile\nuse   coalescing\n"))
    kept = ["//     kernel a             # mine", "//     tile   block  32x32  # the tile", "//     use    coalescing"]
    assert text.splitlines()[4:7] == kept


def test_a_pipeline_has_its_picture() -> None:
    spec = gemmgen.load("pipelined")
    lines = [line.split("//")[1].split() for line in gemmgen.emit(spec).splitlines() if line.endswith("  ...")]
    assert lines == [
        ["iteration", "t", *"0123456", "..."],
        ["multiplies", "stage", *"0120120", "..."],
        ["waits", "for", "parity", *"0001110", "..."],
        ["refills", "it", "with", "tile", *"3456789", "..."],
    ]
    assert "  ..." not in gemmgen.emit(gemmgen.load("warptile"))
    picture = [line.split()[1:] for line in gemmgen.emit(gemmgen.load("cpasync")).splitlines() if line.endswith("...")]
    assert [row[-4:-1] for row in picture[1:]] == [["1", "2", "0"], ["6", "7", "8"], ["0", "1", "2"]]


def test_no_bare_number_of_lanes() -> None:
    for name in ("warptile", "pipelined", "tma"):
        code = [line.partition("//")[0] for line in gemmgen.emit(gemmgen.load(name)).splitlines()]
        bare = [line for line in code if re.search(r"(threadIdx\.x|THREADS) [/%] 32|\b32 \*", line)]
        assert not bare and "constexpr int WARP = 32;" in "".join(line.replace("  ", "") for line in code)
