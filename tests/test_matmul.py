"""``gemmgen.matmul``: which kernel it takes, that it is right, and what a call costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import at_most

import gemmgen
from gemmgen import matmul as _function
from gemmgen.diagnostics import ArgumentError
from gemmgen.dispatch import shipped as shipping
from gemmgen.dispatch.matmul import choice_for, forget
from gemmgen.dispatch.matmul import choose as choose_for
from gemmgen.dispatch.select import by_cover, choose
from gemmgen.dispatch.shipped import Winner, document
from gemmgen.target import GPUS
from gemmgen.tune.cover import cover_for
from gemmgen.tune.features import served
from gemmgen.tune.shapes import alignment_of, distance, kind_of, order_of_nearness, packed

H200, T4 = GPUS["h200"], GPUS["t4"]
ALIGNED = (16, 16, 16)


def text(name: str, block: str = "64x64x8", more: str = "") -> str:
    return f"kernel {name}\ntile block {block}\ntile thread 4x4\nuse coalescing, smem{more}\n"


def winner(name: str, *shape: int, align: tuple[int, int, int] = ALIGNED, **changes: str) -> Winner:
    m, n, k = shape
    return Winner((m, n, k), align, text(name, **changes))


# --- Shapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((512, 512, 512), "square"), ((8192, 1024, 1024), "square"), ((3000, 777, 2049), "square"),
        ((1, 4096, 4096), "skinny_m"), ((64, 4096, 4096), "skinny_m"), ((65, 4096, 4096), "square"),
        ((4096, 64, 4096), "skinny_n"), ((16, 16, 9000), "skinny_m"), ((256, 256, 65536), "deep"),
        ((256, 256, 4095), "square"), ((4096, 4096, 64), "shallow"), ((4096, 4096, 257), "square"),
    ],
)  # fmt: skip
def test_kinds_of_shapes(shape: tuple[int, int, int], kind: str) -> None:
    assert kind_of(shape) == kind


def test_alignment_follows_from_rows_and_addresses() -> None:
    assert packed((4096, 4096, 4096)) == (16, 16, 16) and packed((4095, 4095, 4095)) == (4, 4, 4)
    assert packed((10, 4, 6)) == (8, 16, 16)
    assert alignment_of((4, 4, 4), (0, 8, 4)) == (16, 8, 4)


def test_distances_are_symmetric_and_nearness_is_an_order() -> None:
    one, other = (512, 512, 512), (1024, 256, 512)
    assert distance(one, other, ALIGNED, ALIGNED) == distance(other, one, ALIGNED, ALIGNED) == 2.0
    assert distance(one, one, ALIGNED, (4, 16, 16)) == 4.0
    known = [((1024,) * 3, ALIGNED), ((512,) * 3, (4, 4, 4)), ((512,) * 3, ALIGNED), ((8, 512, 512), ALIGNED)]
    assert order_of_nearness((600,) * 3, ALIGNED, known) == [2, 0, 1]  # the last is of another kind


# --- Which kernel -----------------------------------------------------------------------------------------------------


def test_the_exact_shape_comes_first_then_the_model() -> None:
    ships = [winner("near", 1000, 1000, 1000), winner("far", 4096, 4096, 4096)]
    own = [winner("exact", 1024, 1024, 1024), winner("skinny", 8, 1024, 1024)]
    exact = choose((1024, 1024, 1024), ALIGNED, H200, ships, own)
    assert (exact.spec.name, exact.source, exact.tuned_for) == ("exact", "records", (1024, 1024, 1024))
    near = choose((1000, 1000, 1000), ALIGNED, H200, ships, own)
    assert (near.spec.name, near.source, near.tuned_for) == ("near", "shipped", (1000, 1000, 1000))
    model = choose((1004, 1000, 1000), ALIGNED, H200, ships, own)
    assert (model.source, model.tuned_for) == ("model", None) and model.spec.name == "matmul"
    assert choose((1000, 1000, 1000), (4, 4, 4), H200, ships).source == "model"
    assert choose((1000, 1000, 1000), ALIGNED, H200, ships, layout="nt").source == "model"


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_a_choice_reads_the_layout_as_it_lies_or_after_copies(layout: Any) -> None:
    for shape in ((1000, 1000, 1000), (4096, 4096, 4096), (16, 4096, 4096), (4096, 1, 4096), (0, 5, 0), (1, 1, 1)):
        found = choose_for(*shape, layout=layout, gpu="h200")
        lies = [x for x in ("nn", "nt", "tn", "tt") if served(found.spec, x) is not None]  # type: ignore[arg-type]
        copied = {x for x in lies if all(p == q or q == "t" for p, q in zip(x, layout, strict=True))}
        assert copied and found.expected_s is not None and found.expected_s > 0
        read = "".join("n" if name in found.copied else x for name, x in zip("AB", layout, strict=True))
        assert served(found.spec, read) is found.swapped  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "tf32"])
@pytest.mark.parametrize("name", ["a100", "l40s", "h100", "h200", "b200"])
def test_a_choice_says_for_which_gpu_it_is_what_it_copies_and_how_long_it_takes(name: str, dtype: str) -> None:
    gpu = GPUS[name]
    found = choose_for(4096, 4096, 4096, dtype=dtype, layout="nt", gpu=name)
    assert found.gpu == gpu.title and found.expected_s is not None
    peak = gpu.fp32_tflops if dtype == "f32" else gpu.tensor_tflops(16 if dtype == "bf16" else 32)
    assert peak is not None and 2 * 4096**3 / found.expected_s < peak * 1e12  # no faster than the GPU can be
    said = str(found)
    assert said.startswith(f"# for {gpu.title}, ") and "expected" in said
    assert (found.spec.B.order == "row") == ("B copied to rows first" in said)


def test_swapped_kernels_compute_the_transposed_product() -> None:
    base = gemmgen.parse(text("k"))
    col = base.C.__class__("f32", "col")
    assert served(base, "nn") is False and served(base, "nt") is None
    assert served(base.replace(C=col), "tt") is True and served(base.replace(A=col, B=col, C=col), "nn") is True
    assert served(base.replace(B=col), "nt") is False and served(base.replace(B=col, C=col), "nt") is True


def test_constants_of_another_gpu_are_scaled_and_it_is_said() -> None:
    cover, other = cover_for(H200), cover_for(GPUS["h100"])
    assert cover is not None and other is not None and cover_for(T4) is None
    assert not cover.scaled_from and other.scaled_from == H200.title
    assert other.rates.dram_byte_s < cover.rates.dram_byte_s
    found = choose_for(1000, 1000, 1000, gpu="h100")
    assert found.source == f"model, constants of the {H200.title} scaled"
    assert by_cover((1000, 1000, 1000), ALIGNED, "nn", cover).source == "model"


def test_a_choice_refuses_what_it_does_not_know() -> None:
    for arguments, said in (
        ({"dtype": "f64"}, "dtype"), ({"layout": "xy"}, "layout"), ({"batch": 2}, "batch"), ({"gpu": "h201"}, "h200"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=said):
            choose_for(1, 2, 3, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="m is"):
        choose_for(-1, 2, 3)


def test_the_users_records_come_before_shipped_winners_at_the_same_shape() -> None:
    found = choose((64, 65, 66), (4, 4, 4), H200, [winner("ships", 64, 65, 66, align=(4, 4, 4))],
                   [winner("mine", 64, 65, 66, align=(4, 4, 4))])  # fmt: skip
    assert (found.spec.name, found.source) == ("mine", "records")


def test_what_is_not_legal_or_cannot_run_is_passed_over() -> None:
    ships = [
        winner("broken", 512, 512, 512, block="30x64x8"), winner("engine", 512, 512, 512, more=", float4, tma"),
        winner("fine", 512, 512, 512),
    ]  # fmt: skip
    assert choose((512, 512, 512), ALIGNED, T4, ships).spec.name == "fine"
    assert choose((512, 512, 512), ALIGNED, H200, ships).spec.name == "engine"


def test_a_file_of_winners_comes_back(tmp_path: Path) -> None:
    rows = (winner("one", 1, 2, 3, align=(4, 8, 16)), winner("two", 4, 5, 6))
    (tmp_path / "gpu.json").write_text(document(rows, arch="sm_90", gpu="NVIDIA H200", commit="abc"))
    shipping.shipped.cache_clear()
    found = shipping.shipped("sm_90", tmp_path)
    assert found is not None and found.rows == rows and found.gpu == "NVIDIA H200"
    assert shipping.shipped("sm_80", tmp_path) is None


SHIPPED = sorted(shipping.FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_every_winner_that_ships_is_a_legal_spec(path: Path) -> None:
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert rows
    for row in rows:
        spec = gemmgen.parse(row["spec"])
        assert spec.to_text() == row["spec"] and not spec.tune
        assert (row["m"], row["n"], row["k"]) == tuple(int(x) for x in (row["m"], row["n"], row["k"]))


def test_the_users_records_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen import matmul as name_of_the_function
    from gemmgen.dispatch.matmul import _own
    from gemmgen.tune.records import Machine, Record, Records, RecordsWarning

    assert callable(name_of_the_function)
    monkeypatch.setenv("GEMMGEN_RECORDS", str(tmp_path / "r.sqlite"))
    forget()
    assert _own("GPU") == ()
    with Records() as book:
        machine, types = Machine("GPU", "1", "2"), "f32,f32,f32"
        book.put(Record(machine, (7, 8, 9), types, ALIGNED, False, "k", text("mine"), "ok", 1.0))
    assert _own("GPU") == ()  # read once
    forget()
    assert [w.spec for w in _own("GPU")] == [text("mine")] and _own("another GPU") == ()
    (tmp_path / "r.sqlite").write_text("no database" * 500)
    forget()
    with pytest.warns(RecordsWarning, match=r"records are not used: .*r\.sqlite"):
        assert _own("GPU") == ()
    forget()


# --- Products ---------------------------------------------------------------------------------------------------------


def arrays(m: int, n: int, k: int) -> list[Any]:
    rng = np.random.default_rng(m + n + k)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n), (m, n))]


@pytest.fixture
def on_the_simulator(monkeypatch: pytest.MonkeyPatch) -> Any:
    from gemmgen.runtime import device

    monkeypatch.setattr(device, "current", lambda: None)
    forget()
    yield
    forget()


@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 64, 64), (130, 70, 33), (1, 100, 50), (8, 300, 17), (0, 5, 3), (5, 0, 3), (5, 3, 0)]
)
def test_numpy_without_a_gpu_is_right(on_the_simulator: None, m: int, n: int, k: int) -> None:
    a, b, c = arrays(m, n, k)
    fresh = gemmgen.matmul(a, b)
    assert gemmgen.verify(fresh, a, b).ok
    before = c.copy()
    assert gemmgen.matmul(a, b, c, 0.5, -2.0) is c
    assert gemmgen.verify(c, a, b, before, 0.5, -2.0).ok


def test_views_and_transposed_inputs(on_the_simulator: None) -> None:
    a, b, _ = arrays(40, 48, 36)
    wide = np.full((40, 60), np.nan, np.float32)
    out = wide[:, 5:53]
    assert gemmgen.matmul(np.asfortranarray(a), b[:, ::-1], out) is out
    assert gemmgen.verify(out, a, b[:, ::-1].copy()).ok
    assert np.isnan(wide[:, :5]).all() and np.isnan(wide[:, 53:]).all()


def test_what_does_not_fit_is_refused_by_name(on_the_simulator: None) -> None:
    a, b, c = arrays(8, 9, 10)
    for arguments, said in (
        ((a, a), "A has 10 columns, and B 8 rows"),
        ((a[0], b), "dimension"),
        ((a, b.astype(np.float64)), "float64"),
        ((a, b, c[:, :4]), "C is 8x4"),
        ((a, "b"), "array"),
        ((a, b, None, 1.0, 1.0), "beta"),
    ):
        with pytest.raises(ArgumentError, match=said):
            gemmgen.matmul(*arguments)


def test_too_large_for_the_simulator_is_an_error(on_the_simulator: None) -> None:
    a = np.zeros((4096, 4096), np.float32)
    with pytest.raises(ArgumentError, match="there is no GPU here"):
        gemmgen.matmul(a, a)


def test_a_choice_can_be_asked_for() -> None:
    found = choice_for(4096, 4096, 4096)
    assert found.source in ("shipped", "records", "model") and gemmgen.parse(found.spec.to_text()) == found.spec


class Counting:
    """Stands for a loaded kernel: what is left of a call is matmul's own."""

    calls = 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return arguments[2]


def test_a_warm_call_adds_little_to_the_kernels_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    module = sys.modules["gemmgen.dispatch.matmul"]
    stand_in = Counting()
    monkeypatch.setattr(module, "_kernel_of", lambda *a: stand_in)
    forget_kernel = module._kernel.cache_clear  # type: ignore[attr-defined]
    forget_kernel()
    a, b, c = arrays(64, 64, 64)
    _function(a, b, c)
    with at_most(calls=42):
        _function(a, b, c)
    forget_kernel()
    assert stand_in.calls == 2


def test_operands_of_torch_are_looked_at_once_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    module = sys.modules["gemmgen.dispatch.matmul"]
    asked: list[bool] = []
    calls: list[tuple[Any, ...]] = []

    class OnTorch:
        def of_torch(self, *arguments: Any) -> Any:
            calls.append(arguments)
            return arguments[3]

    def choose_kernel(a: Any, b: Any, c: Any, unordered: bool) -> OnTorch:
        asked.append(unordered)
        return OnTorch()

    seen = (("shapes", "strides"), 0, 256, 512, 768)
    monkeypatch.setattr(module, "torch_matrices", lambda *x: seen)
    monkeypatch.setattr(module, "_kernel", choose_kernel)
    monkeypatch.setattr(module, "_SEEN", module._Seen())
    a, b, c = arrays(4, 4, 4)
    for _ in range(3):
        assert _function(a, b, c, 2, 0.5) is c
    _function(a, b, c, unordered=True)
    assert asked == [False, True] and len(calls) == 4
    assert calls[0] == (seen, a, b, c, 2.0, 0.5) and type(calls[0][4]) is float
    module._SEEN.clear()
    _function(a, b, c)
    assert asked == [False, True, False]
    with pytest.raises(ArgumentError, match="alpha"):
        _function(a, b, c, "2")


@pytest.mark.parametrize("orders", [("row", "row", "col"), ("row", "col", "col"), ("col", "col", "col")])
def test_a_swapped_kernel_gives_the_product_of_the_callers_matrices(orders: tuple[Any, Any, Any]) -> None:
    from gemmgen.api.kernel import Kernel
    from gemmgen.spec.model import Operand

    a_order, b_order, c_order = orders
    spec = gemmgen.parse(text("k")).replace(
        A=Operand("f32", a_order), B=Operand("f32", b_order), C=Operand("f32", c_order)
    )
    kernel = Kernel(spec, "sim", swapped=True)
    a, b, c = arrays(40, 70, 36)
    fresh = kernel(a, b)
    assert fresh.shape == (40, 70) and fresh.flags.c_contiguous and gemmgen.verify(fresh, a, b).ok
    before = c.copy()
    assert kernel(a, b, c, 2.0, 0.5) is c
    assert gemmgen.verify(c, a, b, before, 2.0, 0.5).ok


@pytest.mark.parametrize(
    ("a", "b", "c", "question"),
    [
        (((8, 12), (12, 1)), ((12, 20), (20, 1)), None, ((8, 20, 12), (16, 16, 16), "nn", False)),
        (((8, 12), (12, 1)), ((12, 20), (1, 12)), None, ((8, 20, 12), (16, 16, 16), "nt", False)),
        (((8, 13), (1, 8)), ((13, 20), (20, 1)), None, ((8, 20, 13), (16, 16, 16), "tn", False)),
        (((8, 12), (12, 1)), ((12, 20), (20, 1)), ((8, 20), (1, 8)), ((20, 8, 12), (16, 16, 16), "tt", True)),
        (((8, 12), (12, 1)), ((12, 1), (1, 1)), None, ((1, 8, 12), (16, 16, 16), "nt", True)),
        (((8, 12), (24, 2)), ((12, 21), (21, 1)), None, ((8, 21, 12), (16, 4, 4), "nn", False)),
    ],
)
def test_operands_as_they_lie_become_a_question(a: Any, b: Any, c: Any, question: Any) -> None:
    import sys

    module = sys.modules["gemmgen.dispatch.matmul"]
    described = [None if x is None else (*x, 0, 0) for x in (a, b, c)]
    assert module._question(*described) == question


def test_operands_that_do_not_fit_are_no_question() -> None:
    import sys

    module = sys.modules["gemmgen.dispatch.matmul"]
    one, other = ((8, 12), (12, 1), 0, 0), ((13, 20), (20, 1), 0, 0)
    assert module._question(one, other, None) is None
    fits, strided = ((12, 20), (20, 1), 0, 0), ((8, 20), (40, 2), 0, 0)
    assert module._question(one, fits, strided) is None
