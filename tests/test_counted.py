"""What accesses of 16-bit elements cost, and arithmetic by pipe: read from the program and run, with one result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from simir import R, at, kernel, ramp, run, tid, zeros
from typedir import get, given, held, put, tile, typed

from gemmgen import explain, simulate, verify
from gemmgen.analysis.counts import count
from gemmgen.analysis.model import bounds
from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.nodes import Alloc, Call, Fma, For, Sync, Var
from gemmgen.ir.types import BF16, F16, F32, DType
from gemmgen.isa.counted import TOTALS, Cost
from gemmgen.isa.memory import in_words, shared_wavefronts
from gemmgen.isa.table import Instruction, Work
from gemmgen.sim.run import GlobalArray, merged
from gemmgen.spec.ladder import ladder_path
from gemmgen.spec.parse import load

T = tid()
K = Var("k", 0, None, uniform=True)
SYNC = Sync(0, "tile: written above, read below")


# --- Costs ------------------------------------------------------------------------------------------------------------


def both(ir: KernelIR, a: NDArray[Any]) -> dict[str, Any]:
    """The totals of a kernel: those of the simulator, which the counts must give too."""
    ran = run(ir, a).counters
    sizes = {"M": 1, "N": 64, "K": 64, "alpha": 1.0, "beta": 0.0, "lda": 64, "ldb": 64, "ldc": 64}
    counted = count(ir, sizes, (1, 1, 1))
    for space in TOTALS:
        for op in ("load", "store"):
            assert counted.total(space, op).totals(space) == ran[space][op]
    return ran


@pytest.mark.parametrize(("index", "width", "sectors", "used"), [
    (T, 1, 2, 64), (T * 2, 1, 4, 64), (T * 16, 1, 32, 64), (T // 2, 1, 1, 32), (T * 2, 2, 4, 128), (T * 8, 8, 16, 512),
    (T + 1, 1, 3, 64), (T + 15, 1, 3, 64), (T + 16, 1, 2, 64),
])  # fmt: skip
def test_sectors_of_16_bit_elements(index: Expr, width: int, sectors: int, used: int) -> None:
    loads = both(kernel(get(at(given("A", F16), index), width)), typed(ramp(1024), F16))["global"]["load"]
    assert (loads["requests"], loads["sectors"], loads["bytes_used"]) == (1, sectors, used)


def test_sectors_are_of_addresses_in_bytes() -> None:
    ir = kernel(get(at(given("A", F16), T)))
    starts = {2: 3, 30: 3, 32: 2, 256: 2}
    for start, sectors in starts.items():
        a = GlobalArray(typed(ramp(64), F16), alignment=start)
        assert run(ir, a).counters["global"]["load"]["sectors"] == sectors
        assert count(ir, {"M": 1, "N": 64, "K": 64}, (1, 1, 1), {"A": start}).total("global", "load").sectors == sectors


@pytest.mark.parametrize(("index", "width", "op", "wavefronts", "ideal"), [
    (T, 1, "load", 1, 1),  # 16 words
    (T, 1, "store", 1, 1),  # two lanes store the halves of one word
    (T * 2, 1, "load", 1, 1),
    (T * 4, 1, "load", 2, 1),
    (T * 64, 1, "load", 32, 1),
    (T * 64, 1, "store", 32, 1),
    (T // 2 * 64 + T % 2, 1, "load", 16, 1),  # the halves of 16 words in one bank
    (T // 2 * 64 + T % 2, 1, "store", 16, 1),
    (T + 1, 1, "load", 1, 1),
    (T * 2, 2, "load", 1, 1),
    (T * 4, 4, "load", 2, 2),
    (T * 8, 8, "load", 4, 4),
    (T * 8, 8, "store", 4, 4),
    (T // 2 * 8, 8, "load", 2, 2),
    (T * 16, 8, "load", 8, 4),
])  # fmt: skip
def test_wavefronts_of_16_bit_elements(index: Expr, width: int, op: str, wavefronts: int, ideal: int) -> None:
    halves = tile(BF16, 4096)
    fill = For(K, Const(0), Const(4096), Const(32), put(at(halves, K + T)))
    use = get(at(halves, index), width) if op == "load" else put(at(halves, index), width=width)
    a = typed(zeros(64), BF16)
    before = both(kernel(fill, SYNC, arrays=(halves,)), a)["shared"][op]
    after = both(kernel(fill, SYNC, use, arrays=(halves,)), a)["shared"][op]
    found = [after[name] - before[name] for name in ("requests", "wavefronts", "ideal_wavefronts")]
    assert found == [1, wavefronts, ideal]


@pytest.mark.parametrize(("dtype", "turns", "requests", "wavefronts"), [
    (F32, 4, 1, 4), (F32, 6, 3, 12), (BF16, 8, 1, 4), (BF16, 4, 1, 4), (BF16, 6, 3, 12), (BF16, 5, 5, 20),
])  # fmt: skip
def test_scalar_loads_are_joined_up_to_16_bytes(dtype: DType, turns: int, requests: int, wavefronts: int) -> None:
    """Each thread reads ``turns`` neighbours, 16 bytes after those of the thread before: every load costs
    4 wavefronts, whatever its width, since eight lanes go round all banks."""
    pitch, some = 16 // dtype.bytes, tile(dtype, 1024)
    loop = For(K, Const(0), Const(turns), Const(1), get(at(some, T * pitch + K)), unroll=True)
    cost = count(kernel(loop, arrays=(some,)), {"M": 1, "N": 64, "K": 64}, (1, 1, 1)).total("shared", "load")
    assert cost.requests == turns
    assert (cost.merged_requests, cost.merged_wavefronts) == (requests, wavefronts)


def test_an_access_below_a_word_is_served_as_its_word() -> None:
    addresses = np.arange(32)[None, :] * 2
    words, width = in_words(addresses, 2)
    assert width == 1 and words[0].tolist() == [lane // 2 for lane in range(32)]
    assert shared_wavefronts(words[0].tolist(), width, store=True) == 1
    assert in_words(addresses, 16)[1] == 4


def test_one_pattern_of_lanes_costs_by_its_type() -> None:
    """The same index of arrays of two types: the costs are kept apart."""
    c = typed(zeros(32), F16)
    ir = kernel(get(at(given("A", F32), T)), put(at(given("C", F16), T)))
    counters = run(ir, ramp(64), c).counters["global"]
    assert (counters["load"]["sectors"], counters["store"]["sectors"]) == (4, 2)


@pytest.mark.parametrize("name", ["naive", "vectorized", "cpasync", "tma", "pipelined"])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_a_rung_of_16_bit_operands_is_right_and_counted_as_it_runs(name: str, dtype: DType) -> None:
    f32 = load(ladder_path(name))
    narrow = {x: replace(getattr(f32, x), dtype=dtype.name) for x in "ABC"}
    spec, (m, n, k) = f32.replace(**narrow), (70, 136, 40)
    rng = np.random.default_rng(3)
    a, b = (typed(rng.standard_normal(shape), dtype) for shape in ((m, k), (k, n)))
    done = simulate(spec, a, b)
    assert not done.faults and done.C.dtype == dtype.numpy_dtype
    assert verify(done.C, a, b, spec=spec).ok
    read = explain(spec, m, n, k, compiled=False).to_dict()
    assert {key: read[key] for key in ("fma", "global", "shared")} == {
        key: done.counters[key] for key in ("fma", "global", "shared")
    }


# --- Arithmetic by pipe -----------------------------------------------------------------------------------------------

TENSOR = Call(Instruction("tensor_product", "", lambda lanes: None, work=Work("tensor", 128)), ())


def test_flops_are_counted_by_pipe_read_and_run() -> None:
    acc = held(F32, name="acc")
    turns = For(K, Const(0), Const(5), Const(1), (Fma(at(acc), at(R), at(R)), TENSOR))
    ir = kernel(Alloc(acc, 0.0), Alloc(R, 1.0), turns, TENSOR)
    ran, read = run(ir, blocks=3), count(ir, {"M": 1, "N": 64, "K": 64}, (3, 1, 1))
    assert ran.math == read.math == {"fma": 2 * 5 * 96, "tensor": 128 * 6 * 96}
    assert ran.counters["fma"] == read.fma == 5 * 96
    assert merged([ran, ran]).math == (read + read).math == (read * 2).math


def test_the_tensor_cores_bind_only_what_uses_them() -> None:
    e = explain(load(ladder_path("warptile")), 256, 256, 256, compiled=False)
    assert e.bound.tensor_s == 0.0 and "tensor_s" not in e.bound.to_dict()
    tensor = replace(e.run, counts=replace(e.counts, math={"fma": 0, "tensor": 10**15}))
    found = bounds(tensor)
    assert found.tensor_s == pytest.approx(10**15 / (e.gpu.tf32_tflops * 1e12)) and found.compute_s == 0
    assert found.floor_s == found.tensor_s and found.to_dict()["tensor_s"] == found.tensor_s


def test_costs_add_up_by_quantity() -> None:
    one = Cost(requests=1, sectors=4, wavefronts=2)
    assert (one + one) == one * 2 == Cost(requests=2, sectors=8, wavefronts=4)
    assert list(one.totals("global")) == ["requests", "sectors", "bytes_used"]
    assert list(one.each("global")) == ["requests", "sectors", "wavefronts"]
    assert list(one.each("tma"))[-1] == "bytes"
