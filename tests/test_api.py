"""The public surface: names, in-place updates, refusals, and what a kernel says of itself."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pytest
from simhelp import operands, run_ir

import gemmgen
from gemmgen import ArgumentError, SimulationFault, SpecError
from gemmgen.api.kernel import Kernel
from gemmgen.lower import lower

F32 = np.float32
TEXT = """kernel tiled
tile block 32x32x8
tile thread 4x4
use coalescing, smem, transposeA, float4
"""
SPEC = gemmgen.parse(TEXT)
ROOT = Path(__file__).resolve().parents[1]


def ones(*shape: int) -> Any:
    return np.ones(shape, F32)


@pytest.fixture
def kernel() -> Kernel:
    return gemmgen.compile(SPEC, device="sim")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- Names ------------------------------------------------------------------------------------------------------------


def test_importing_gemmgen_loads_nothing_heavy() -> None:
    loaded = set(python("import sys, gemmgen; print(*sys.modules)").split())
    assert "gemmgen" in loaded
    assert not {m for m in loaded if m.split(".")[0] in ("numpy", "cuda", "rich", "typer", "lark", "torch", "elftools")}
    assert {m for m in loaded if m.startswith("gemmgen.")} == {"gemmgen.version"}


def test_text_to_cuda_loads_neither_numpy_nor_cuda() -> None:
    code = f"import sys, gemmgen; gemmgen.emit(gemmgen.parse({TEXT!r})); print(*sys.modules)"
    assert not {m for m in python(code).split() if m.split(".")[0] in ("numpy", "cuda", "rich", "typer")}


def test_every_public_name_is_there() -> None:
    for name in gemmgen.__all__:
        assert getattr(gemmgen, name) is not None
    assert set(gemmgen.__all__) <= set(dir(gemmgen))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gemmgen.nothing  # noqa: B018


@pytest.mark.parametrize("first", ["gemmgen.lower", "gemmgen.verify", "gemmgen.api.simulation"])
def test_functions_keep_the_names_they_share_with_modules(first: str) -> None:
    code = f"import {first}; import gemmgen; import {first}; print(gemmgen.lower.__name__, gemmgen.verify.__name__)"
    assert python(code).split() == ["lower", "verify"]
    assert (
        python(f"import gemmgen; gemmgen.lower; from {first} import *; print(gemmgen.lower.__name__)").strip()
        == "lower"
    )


# --- Specs and text ---------------------------------------------------------------------------------------------------


def test_parse_refuses_tiles_that_fit_no_gpu() -> None:
    text = "kernel big\ntile block 256x256x128\ntile thread 8x8\nuse smem\n"
    with pytest.raises(SpecError, match=r"262144 bytes of shared memory") as caught:
        gemmgen.parse(text, "big.gemm")
    assert (caught.value.filename, caught.value.line) == ("big.gemm", 2)


def test_what_replace_makes_too_large_is_refused_where_it_is_used() -> None:
    small = gemmgen.parse("kernel big\ntile block 256x256x8\ntile thread 8x8\nuse smem\n")
    big = small.replace(block=(256, 256, 128))
    for use in (gemmgen.lower, gemmgen.emit, gemmgen.compile):
        with pytest.raises(SpecError, match="shared memory"):
            use(big)  # type: ignore[operator]
    assert list(gemmgen.variants(small, block=[(256, 256, 8), (256, 256, 128)])) == [small]


def test_load_reads_what_parse_reads(tmp_path: Path) -> None:
    path = tmp_path / "tiled.gemm"
    path.write_text(TEXT, encoding="utf-8")
    assert gemmgen.load(path) == gemmgen.load(str(path)) == SPEC
    with pytest.raises(SpecError, match="No such file"):
        gemmgen.load(tmp_path / "none.gemm")
    assert gemmgen.load("warptile").name == "warptile"


def test_emit_is_the_same_every_time_and_tells_variants_apart() -> None:
    texts = [gemmgen.emit(SPEC, variant=v) for v in ("exact", "guarded", "guarded_unaligned")]
    assert len(set(texts)) == 3
    assert [gemmgen.emit(gemmgen.parse(TEXT), variant=v) for v in ("exact", "guarded", "guarded_unaligned")] == texts
    assert texts[0] == gemmgen.compile(SPEC, device="sim").source


def test_comments_of_equal_specs_stay_their_own() -> None:
    """Equality of specs leaves comments out; nothing remembered may mix them up."""
    one, two = (gemmgen.parse(f"# {word}\n{TEXT}") for word in ("Alpacas", "Zebras"))
    assert one == two
    assert [gemmgen.lower(s).summary for s in (one, two)] == [s.comment for s in (one, two)]
    assert [gemmgen.compile(s, device="sim").lowered().summary for s in (one, two)] == [one.comment, two.comment]
    assert ["Alpacas" in gemmgen.emit(s) for s in (one, two)] == [True, False]
    assert ["Zebras" in gemmgen.emit(s) for s in (one, two)] == [False, True]


def test_lines_of_equal_specs_stay_their_own() -> None:
    """A spec that ``replace`` made has no lines: an equal one from a text, lowered after it, has them all the same."""
    text = "kernel lines\ntile block 32x32\ntile thread 4x4\n"
    written, moved = gemmgen.parse(text), gemmgen.parse("\n\n" + text, filename="moved.gemm")
    plain = written.replace(name="other").replace(name="lines")
    assert plain == written == moved and not plain.spans
    found = []
    for spec in (plain, written, moved):
        name = PurePath(spec.filename).name if not spec.filename.startswith("<") else f"{spec.name}.gemm"
        assert lower(spec).source.file == name
        counters = run_ir(lower(spec), *operands(32, 32, 8)).counters
        found.append({a["spec_line"] for a in counters["accesses"] if a["operand"] == "C"})
        assert dict(lower(spec).source.origins) == {name: span.line for name, span in spec.spans.items()}
    assert found == [{None}, {3}, {5}]  # of "tile thread"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: gemmgen.emit(SPEC, variant="fast"),
            "variant is 'fast'; it is one of exact, guarded, guarded_unaligned",
        ),
        (lambda: gemmgen.load(None), "path is a NoneType; it names a file"),  # type: ignore[arg-type]
        (lambda: gemmgen.emit("specs/warptile.gemm"), "spec is a str; gemmgen.load(path)"),  # type: ignore[arg-type]
        (lambda: gemmgen.simulate(None, ones(2, 2), ones(2, 2)), "spec is a NoneType"),  # type: ignore[arg-type]
        (lambda: gemmgen.lower(SPEC, "fast"), "variant is 'fast'"),
        (lambda: gemmgen.emit(SPEC, arch="hopper"), "arch is 'hopper'; it is written as in 'sm_90'"),
        (lambda: gemmgen.compile(SPEC, device="tpu"), "device is 'tpu'; it is one of auto, sim, cuda"),
        (lambda: gemmgen.compile(SPEC, device="sim", arch="9.0"), "arch is '9.0'"),
        (lambda: gemmgen.simulate(SPEC, ones(2, 2), ones(2, 2), gpu="h2000"), "h2000"),
    ],
)
def test_names_that_do_not_exist_are_refused(call: Any, message: str) -> None:
    with pytest.raises(gemmgen.GemmgenError, match=re.escape(message)):
        call()


# --- Calling a kernel -------------------------------------------------------------------------------------------------


def test_c_is_updated_in_place_and_returned(kernel: Kernel) -> None:
    C = ones(5, 7)
    assert kernel(ones(5, 3), ones(3, 7), C, 2.0, 3.0) is C
    assert (C == 9.0).all()
    wide = np.zeros((5, 20), F32)
    assert kernel(ones(5, 3), ones(3, 7), wide[:, 2:9]).base is wide
    assert (wide[:, 2:9] == 3.0).all() and not wide[:, :2].any() and not wide[:, 9:].any()


def test_c_is_made_where_it_is_not_given(kernel: Kernel) -> None:
    C = kernel(ones(5, 3), ones(3, 7))
    assert type(C) is np.ndarray and C.dtype == F32 and C.shape == (5, 7) and (C == 3.0).all()
    column = gemmgen.compile(gemmgen.parse(TEXT + "operands C f32 col\n"), device="sim")(ones(5, 3), ones(3, 7))
    assert column.flags.f_contiguous and (column == 3.0).all()
    with pytest.raises(ArgumentError, match=r"beta is 1\.0 and C is None"):
        kernel(ones(5, 3), ones(3, 7), beta=1.0)
    assert (kernel(ones(5, 3), ones(3, 7), beta=0) == 3.0).all()


@pytest.mark.parametrize(
    ("A", "B", "C", "message"),
    [
        (ones(3, 4), ones(5, 6), None, "A is 3x4 and B is 5x6"),
        (ones(3, 4), ones(4, 6), ones(6, 3), "C is 6x3; A @ B is 3x6"),
        (ones(4), ones(4, 6), None, "A has 1 dimensions, shape (4,)"),
        (ones(1, 2, 3, 4), ones(4, 6), None, "A has 4 dimensions"),
        (ones(3, 4), ones(4, 6), ones(18), "C has 1 dimensions"),
        ([[1.0]], ones(1, 1), None, "A is a list; it must be an array"),
        (ones(1, 1), None, None, "B is a NoneType; it must be an array"),
        (np.ma.masked_array(ones(1, 1)), ones(1, 1), None, "A is a masked array"),
    ],
)
def test_operands_that_do_not_fit_are_refused(kernel: Kernel, A: Any, B: Any, C: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        kernel(A, B, C)
    with pytest.raises(ArgumentError, match=re.escape(message)):
        gemmgen.simulate(SPEC, A, B, C)


def test_overlapping_and_read_only_outputs_are_refused(kernel: Kernel) -> None:
    X = ones(8, 16)
    for A, B, C in (
        (X[:, :8], ones(8, 8), X[:, 4:12]),
        (ones(8, 8), X[:, 8:], X[:, 8:]),
        (X[:, :8].T, ones(8, 8), X[:, :8]),
    ):
        with pytest.raises(ArgumentError, match="C overlaps"):
            kernel(A, B, C)
    assert (kernel(X[:, :8], ones(8, 8), X[:, 8:]) == 8.0).all() and (X[:, :8] == 1.0).all()
    fixed = ones(8, 8)
    fixed.flags.writeable = False
    with pytest.raises(ArgumentError, match="C is read-only"):
        kernel(ones(8, 8), ones(8, 8), fixed)


def test_memory_maps_and_matrices_are_arrays(kernel: Kernel, tmp_path: Path) -> None:
    C = np.memmap(tmp_path / "c.bin", F32, "w+", shape=(5, 7))
    assert kernel(np.asmatrix(ones(5, 3)), ones(3, 7), C) is C
    assert (np.fromfile(tmp_path / "c.bin", F32) == 3.0).all()


def test_bases_off_an_element_are_copied_or_refused(kernel: Kernel) -> None:
    def odd(rows: int, columns: int) -> Any:
        view = np.zeros(rows * columns * 4 + 1, np.uint8)[1:].view(F32).reshape(rows, columns)
        view[...] = 1.0
        return view

    assert (kernel(odd(5, 3), odd(3, 7)) == 3.0).all()
    with pytest.raises(ArgumentError, match="C has strides"):
        kernel(ones(5, 3), ones(3, 7), odd(5, 7))
    fields = np.zeros((5, 3), [("a", "f4"), ("b", "u1")])
    fields["a"] = 1.0
    assert (kernel(fields["a"], ones(3, 7)) == 3.0).all()
    with pytest.raises(ArgumentError, match="strides"):
        kernel(ones(5, 3), ones(3, 3), fields["a"])


class OnDevice:
    """An array as a device library shows it."""

    shape, dtype, ndim = (4, 4), np.dtype(F32), 2
    __cuda_array_interface__ = {"shape": (4, 4), "typestr": "<f4", "data": (1 << 40, False), "version": 3}  # noqa: RUF012


class WithGradient:
    requires_grad = True


@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_device_arrays_and_gradients_are_refused_on_the_simulator(kernel: Kernel, name: str) -> None:
    for strange, message in ((OnDevice(), f"{name} is on a device"), (WithGradient(), rf"pass {name}\.detach\(\)")):
        given: dict[str, Any] = {"A": ones(4, 4), "B": ones(4, 4), "C": ones(4, 4), name: strange}
        with pytest.raises(ArgumentError, match=message):
            kernel(given["A"], given["B"], given["C"])
    with pytest.raises(ArgumentError, match="stream"):
        kernel(ones(4, 4), ones(4, 4), stream=0)


def test_arrays_of_other_libraries_are_read_in_place(kernel: Kernel) -> None:
    class Exported:
        """An array that speaks DLPack and nothing else."""

        def __init__(self, values: Any) -> None:
            self.values = values

        def __dlpack__(self, **how: Any) -> Any:
            return self.values.__dlpack__(**how)

        def __dlpack_device__(self) -> Any:
            return self.values.__dlpack_device__()

    assert (kernel(Exported(ones(5, 3)), Exported(ones(3, 7))) == 3.0).all()


def test_a_kernel_may_be_called_from_several_threads() -> None:
    kernel = gemmgen.compile(SPEC, device="sim")
    sizes = [(m, n, k) for m in (31, 32, 33) for n in (32, 37) for k in (8, 13)]

    def run(size: tuple[int, int, int]) -> bool:
        m, n, k = size
        return bool((kernel(ones(m, k), ones(k, n)) == k).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, sizes * 2))


# --- Devices ----------------------------------------------------------------------------------------------------------


def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen.runtime import device

    monkeypatch.setattr(device, "current", lambda: None)


def test_auto_without_a_gpu_is_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    without_gpu(monkeypatch)
    kernel = gemmgen.compile(SPEC)
    assert kernel.device == "sim" and "simulator" in repr(kernel)
    assert (kernel(ones(4, 4), ones(4, 4)) == 4.0).all()


def test_auto_without_a_gpu_refuses_hours_of_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    without_gpu(monkeypatch)
    A = np.broadcast_to(F32(1), (8192, 8192))
    with pytest.raises(ArgumentError, match=r'8192x8192x8192 .* device="sim"'):
        gemmgen.compile(SPEC)(A, A)


def test_cuda_without_a_gpu_is_a_typed_error() -> None:
    from gemmgen.runtime import device

    if device.current() is not None:
        pytest.skip("there is a GPU")
    with pytest.raises(gemmgen.LaunchError, match="no GPU"):
        gemmgen.compile(SPEC, device="cuda")


# --- The simulator ----------------------------------------------------------------------------------------------------


def test_simulate_leaves_its_arguments_alone() -> None:
    C = ones(33, 35)
    result = gemmgen.simulate(SPEC, ones(33, 9), ones(9, 35), C, 2.0, 3.0)
    assert (C == 1.0).all() and (result.C == 21.0).all() and result.faults == ()
    assert set(result.counters) >= {"global", "shared", "fma", "accesses"}


def test_g07_an_empty_product_counts_nothing() -> None:
    result = gemmgen.simulate(SPEC, ones(0, 9), ones(9, 35))
    assert result.C.shape == (0, 35) and result.faults == () and result.counters["fma"] == 0
    assert set(result.counters) == set(gemmgen.simulate(SPEC, ones(1, 1), ones(1, 1)).counters)
    assert result.counters["global"]["load"]["requests"] == 0


def test_simulate_runs_an_ir_as_it_is() -> None:
    exact = gemmgen.lower(SPEC)
    assert (gemmgen.simulate(exact, ones(32, 8), ones(8, 64)).C == 8.0).all()
    with pytest.raises(ArgumentError, match="M = 33 is not a multiple of the tile's 32"):
        gemmgen.simulate(exact, ones(33, 8), ones(8, 64))
    view = np.zeros((32, 12), F32)[:, 1:9]
    with pytest.raises(ArgumentError, match="A is aligned to 4 bytes"):
        gemmgen.simulate(exact, view, ones(8, 64))
    guarded = gemmgen.lower(SPEC, "guarded_unaligned")
    assert (gemmgen.simulate(guarded, ones(33, 7), ones(7, 63)).C == 7.0).all()


def test_simulate_collects_what_a_kernel_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = gemmgen.lower(SPEC)
    broken = exact.without(exact.syncs()[0])
    result = gemmgen.simulate(broken, ones(32, 16), ones(16, 32))
    assert result.faults and {f.kind for f in result.faults} <= {"race", "uninitialized"}
    kernel = gemmgen.compile(SPEC, device="sim")
    monkeypatch.setattr(kernel, "lowered", lambda variant: broken)
    with pytest.raises(SimulationFault) as caught:
        kernel(ones(32, 16), ones(16, 32))
    assert len(caught.value.faults) == len(result.faults) and "race" in str(caught.value)


def test_counts_do_not_depend_on_where_the_host_put_an_array() -> None:
    """Views start where they start in their buffers, as on a GPU, whatever the host's allocator did."""
    counts = []
    for _ in range(5):
        buffer = np.zeros(64 * 64 + 3, F32)
        views = [np.zeros(64 * 64 + 3, F32)[3:].reshape(64, 64) for _ in range(2)]
        counts.append(gemmgen.simulate(SPEC, *views, buffer[3:].reshape(64, 64)).counters)
        del buffer
    assert all(c["global"] == counts[0]["global"] for c in counts)


# --- What a kernel says of itself -------------------------------------------------------------------------------------


def test_cubin_and_resources_need_no_gpu(kernel: Kernel) -> None:
    assert kernel.cubin.startswith(b"\x7fELF")
    resources = kernel.resources
    assert 16 <= resources.registers <= 255
    assert resources.spill_bytes == 0
    assert resources.shared_bytes == gemmgen.lower(SPEC).shared_bytes == (32 + 32) * 8 * 4
    assert resources.threads == 64
    assert kernel.arch == "sm_90"


def test_arch_is_the_callers_then_the_specs() -> None:
    spec = gemmgen.parse(TEXT + "arch sm_80\n")
    assert gemmgen.compile(spec, device="sim").arch == "sm_80"
    assert gemmgen.compile(spec, device="sim", arch="sm_89").arch == "sm_89"


def test_resources_over_48_kb_count_dynamic_shared_memory() -> None:
    spec = gemmgen.parse("kernel big\ntile block 128x128x64\ntile thread 8x8\nuse smem\n")
    assert gemmgen.compile(spec, device="sim").resources.shared_bytes == 2 * 128 * 64 * 4


def test_the_example_ranks_variants() -> None:
    done = subprocess.run(
        [sys.executable, "examples/variants.py"], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert len(rows) >= 6
    assert [int(r[0]) for r in rows] == sorted(int(r[0]) for r in rows)
