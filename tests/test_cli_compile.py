"""``gemmgen compile`` and ``gemmgen run``: the files, the tables, and how little a warm compile loads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gemmgen
from gemmgen.cli import files, run
from gemmgen.cuda.emit import emit_cuda
from gemmgen.runtime import nvrtc
from gemmgen.spec.ladder import ladder_path

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test in a folder of its own, where generated/ may be written."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "120")
    return folder


def nvrtc_is_there() -> bool:
    try:
        nvrtc.version()
    except nvrtc.NvrtcMissing:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not nvrtc_is_there(), reason="NVRTC is not installed")


def missing(*_: object, **__: object) -> None:
    raise nvrtc.NvrtcMissing("NVRTC cannot be loaded (no such library); pip install nvidia-cuda-nvrtc")


# --- compile: files ---------------------------------------------------------------------------------------------------


@needs_nvrtc
def test_compile_writes_both_variants_and_the_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "warptile"]) == 0
    spec = gemmgen.load(ladder_path("warptile"))
    assert (here / "generated" / "warptile.cu").read_text(encoding="utf-8") == gemmgen.emit(spec)
    guarded = (here / "generated" / "warptile_guarded.cu").read_text(encoding="utf-8")
    assert guarded == gemmgen.emit(spec, variant="guarded")
    out, err = capsys.readouterr()
    header, _, exact, edge, target = out.splitlines()
    assert all(word in header for word in ("registers", "spilled bytes", "shared bytes", "threads", "blocks per SM"))
    assert exact.split()[:2] == ["warptile", "exact"] and edge.split()[:2] == ["warptile", "guarded"]
    assert "16,384" in exact and "128" in exact and target.startswith("compiled for sm_")
    assert err.splitlines() == [f"wrote {Path('generated', name)}" for name in ("warptile.cu", "warptile_guarded.cu")]


@needs_nvrtc
@needs_nvrtc
def test_compile_writes_the_kernel_that_adds_up_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = gemmgen.lower(spec := gemmgen.load(ladder_path("splitk"))).then
    assert second is not None
    assert run(["compile", "splitk", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [Path(row["file"]).name for row in rows] == ["splitk.cu", "splitk_guarded.cu", "splitk_reduce.cu"]
    assert [row["kernel"] for row in rows] == ["splitk", "splitk", "splitk_reduce"]
    assert rows[2]["threads"] == second.threads and all(row["registers"] > 0 == row["spill_bytes"] for row in rows)
    text = (here / "generated" / "splitk_reduce.cu").read_text(encoding="utf-8")
    assert text == emit_cuda(second) and text.startswith(
        "// splitk_reduce, the second kernel of splitk: for any M and N,"
    )
    assert "multiples of 64" not in text and "multiples of 16 bytes" in text
    main = gemmgen.emit(spec)
    assert "Launched with C pointing to a workspace" in main and "splitk_reduce makes C of them." in main
    assert run(["compile", "splitk", "--variant", "guarded_unaligned"]) == 0
    assert (here / "generated" / "splitk_reduce_guarded_unaligned.cu").is_file()


def test_each_form_of_a_split_spec_has_both_kernels(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for form, mark, count in (
        ("cuda", "__global__", 2),
        ("ir", "splitk_reduce", 1),
        ("tile", "in a second kernel:", 1),
    ):
        assert run(["compile", "splitk", "--emit", form, "-o", "-"]) == 0
        assert capfd.readouterr().out.count(mark) == count, form
    assert run(["compile", "splitk", "--emit", "tile", "--json", "-o", "."]) == 0
    assert [row["file"] for row in json.loads(capfd.readouterr().out)] == ["splitk.tile", "splitk_guarded.tile"]


def test_a_spec_may_not_take_the_name_of_anothers_second_kernel(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "other.gemm").write_text("kernel splitk_reduce\ntile block 16x16\n", encoding="utf-8")
    assert run(["compile", "splitk", "other.gemm"]) == 2
    assert "would both be splitk_reduce.cu" in capsys.readouterr().err


def test_compile_again_changes_no_byte_and_leaves_nothing_else(here: Path) -> None:
    assert run(["compile", "warptile", "naive", "-o", "out"]) == 0
    before = {p.name: p.read_bytes() for p in (here / "out").iterdir()}
    assert run(["compile", "warptile", "naive", "-o", "out"]) == 0
    assert {p.name: p.read_bytes() for p in (here / "out").iterdir()} == before
    assert sorted(before) == ["naive.cu", "naive_guarded.cu", "warptile.cu", "warptile_guarded.cu"]


@needs_nvrtc
def test_compile_json_is_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "vectorized", "--json", "--arch", "sm_90"]) == 0
    exact, guarded = json.loads(capsys.readouterr().out)
    assert exact["kernel"] == "vectorized" and exact["variant"] == "exact" and guarded["variant"] == "guarded"
    assert exact["threads"] == 256 and exact["shared_bytes"] == 8192 and exact["arch"] == "sm_90"
    fit = gemmgen.occupancy("h200", exact["threads"], exact["registers"], exact["shared_bytes"])
    assert (exact["blocks_per_sm"], exact["limiter"]) == (fit.blocks_per_sm, fit.limiter)
    assert Path(exact["file"]).is_file()


@needs_nvrtc
def test_compile_to_stdout_is_the_text_alone(here: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["compile", "warptile", "-o", "-"]) == 0
    out, err = capfdbinary.readouterr()
    assert out.decode() == gemmgen.emit(gemmgen.load(ladder_path("warptile")))
    assert b"registers" in err
    assert list(here.iterdir()) == []


def test_compile_without_nvrtc_writes_the_text_and_says_why_there_is_no_table(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nvrtc, "compile_cubin", missing)
    assert run(["compile", "warptile"]) == 0
    out, err = capsys.readouterr()
    assert out == "" and "no table of resources: NVRTC cannot be loaded" in err
    assert (here / "generated" / "warptile.cu").is_file()
    assert run(["compile", "warptile", "--json"]) == 0
    assert [row["registers"] for row in json.loads(capsys.readouterr().out)] == [None, None]


@pytest.mark.parametrize("form", ["cubin", "ptx", "sass"])
def test_what_only_nvrtc_makes_is_status_1_without_it(
    form: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nvrtc, "compile_cubin", missing)
    monkeypatch.setattr(nvrtc, "compile_ptx", missing)
    assert run(["compile", "naive", "--emit", form, "-o", "out"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "NVRTC" in err
    assert list(here.iterdir()) == []


@needs_nvrtc
def test_an_architecture_that_nvrtc_does_not_know_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "naive", "--arch", "sm_99"]) == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert "sm_99" in err and "sm_90" in err


def test_two_specs_of_one_name_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "other.gemm").write_text("kernel naive\ntile block 16x16\n", encoding="utf-8")
    assert run(["compile", "naive", "other.gemm"]) == 2
    assert "naive.cu" in capsys.readouterr().err
    assert not (here / "generated").exists()


# --- compile: other forms ---------------------------------------------------------------------------------------------


def test_emit_tile_is_one_screen_on_stdout(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "warptile", "--emit", "tile"]) == 0
    out = capfd.readouterr().out
    assert "for k0 in 0..K step BK:" in out and "barrier" in out and out.count("\n") < 25
    assert list(here.iterdir()) == []


def test_emit_ir_is_the_kernel_ir(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "smem", "--emit", "ir"]) == 0
    spec = gemmgen.load(ladder_path("smem"))
    assert capfd.readouterr().out.rstrip() == str(gemmgen.lower(spec)).rstrip()


@needs_nvrtc
def test_emit_ptx_and_cubin_and_the_variant(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "naive", "--emit", "ptx", "--arch", "sm_80"]) == 0
    out = capfd.readouterr().out
    assert ".target sm_80" in out and ".entry naive" in out
    assert run(["compile", "naive", "--emit", "cubin", "-o", "out", "--variant", "guarded_unaligned"]) == 0
    assert [p.name for p in (here / "out").iterdir()] == ["naive_guarded_unaligned.cubin"]
    assert (here / "out" / "naive_guarded_unaligned.cubin").read_bytes().startswith(b"\x7fELF")


@needs_nvrtc
def test_emit_sass(capfd: pytest.CaptureFixture[str]) -> None:
    from gemmgen.runtime.installed import find_tool

    if find_tool("nvdisasm") is None:
        pytest.skip("nvdisasm is not installed")
    assert run(["compile", "naive", "--emit", "sass", "--arch", "sm_90"]) == 0
    assert "FFMA" in capfd.readouterr().out


# --- files whole or not at all ----------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_one_line_and_status_1(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "file").write_text("in the way", encoding="utf-8")
    assert run(["compile", "naive", "-o", "file"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "naive.cu: cannot be written" in err
    assert [p.name for p in here.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission_is_status_1(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "locked").mkdir(mode=0o500)
    assert run(["compile", "naive", "-o", "locked"]) == 1
    assert "naive.cu: cannot be written" in capsys.readouterr().err
    assert list((here / "locked").iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here / "kernel.cu"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=r"kernel\.cu|cannot be written"):
        files.write_file(path, b"new")
    assert path.read_bytes() == b"old" and [p.name for p in here.iterdir()] == ["kernel.cu"]


def test_a_file_keeps_its_permissions(here: Path) -> None:
    path = here / "kernel.cu"
    files.write_file(path, b"one")
    umask = os.umask(0)
    os.umask(umask)
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o666 & ~umask
        path.chmod(0o640)
    files.write_file(path, b"two")
    assert path.read_bytes() == b"two"
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o640


# --- run --------------------------------------------------------------------------------------------------------------


def test_run_computes_and_verifies_at_a_ragged_size(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "warptile", "--device", "sim", "--size", "130x67x33", "--alpha", "-1.5", "--beta", "2"]) == 0
    out = capsys.readouterr().out
    assert "warptile 130x67x33 on the simulator" in out and "PASS:" in out
    assert (here / "generated" / "warptile_guarded.cu").is_file()


@pytest.mark.parametrize("order", ["row", "col"])
def test_run_gives_c_in_the_order_of_the_spec(order: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine.gemm").write_text(f"kernel mine\ntile block 8x8\noperands C f32 {order}\n")
    line = ["run", "mine.gemm", "--device", "sim", "--size", "9x5x3", "--beta", "2"]
    assert run(line) == 0
    c = np.random.default_rng(1).standard_normal((9, 5), dtype=np.float32)
    for lies in ("C", "F"):
        np.save(here / "c.npy", np.asarray(c, order=lies))
        assert run([*line, "--c", "c.npy"]) == 0
    assert capsys.readouterr().out.count("PASS:") == 3


@pytest.mark.parametrize(
    ("spec", "size", "said"),
    [
        ("warptile", "128x128x16", "the exact variant"), ("warptile", "100x100x100", "the guarded variant"),
        ("warptile", "130x67x33", "the guarded_unaligned variant"), ("warptile", "0x4x4", "nothing to compute"),
        ("smem", "130x67x33", "the guarded variant"),
    ],
)  # fmt: skip
def test_run_says_which_variant_ran(spec: str, size: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", spec, "--device", "sim", "--size", size]) == 0
    assert re.search(rf"^{spec} {size} on the simulator.*: {said}$", capsys.readouterr().out, re.MULTILINE)
    assert run(["run", spec, "--device", "sim", "--size", size, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["variants"] == [w for w in said.split()[1:2] if "variant" in said]


@pytest.mark.parametrize("size", ["0x4x4", "4x0x4", "4x4x0", "1"])
def test_g07_run_of_empty_sizes(size: str) -> None:
    assert run(["run", "smem", "--device", "sim", "--size", size, "--beta", "2"]) == 0


def test_run_takes_and_writes_arrays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(1)
    a, b = random.standard_normal((5, 7), dtype=np.float32), random.standard_normal((7, 3), dtype=np.float32)
    c = np.full((5, 3), np.nan, np.float32)
    for name, array in (("a", a), ("b", b), ("c", c)):
        np.save(here / f"{name}.npy", array)
    files = ["--a", "a.npy", "--b", "b.npy", "--c", "c.npy", "--out", "out.npy"]
    assert run(["run", "naive", "--device", "sim", "--json", *files]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["size"] == [5, 3, 7] and result["verification"]["ok"] and result["device"] == "sim"
    assert gemmgen.verify(np.load(here / "out.npy"), a, b).ok
    assert np.isnan(np.load(here / "c.npy")).all()


def test_a_folder_is_no_array(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "naive", "--a", str(here)]) == 2
    assert f"no file {here} for A" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arrays", "arguments", "says"),
    [
        ({"a": (5, 7), "b": (8, 3)}, [], "K is 7 by A and 8 by B"),
        ({"a": (5, 7)}, ["--size", "4x4x7"], "M is 4 by --size and 5 by A"),
        ({"a": (5, 7, 2)}, [], "an array of shape (5, 7, 2)"),
    ],
)
def test_arrays_that_do_not_fit_are_status_2(
    arrays: dict[str, tuple[int, ...]],
    arguments: list[str],
    says: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, shape in arrays.items():
        np.save(here / f"{name}.npy", np.zeros(shape, np.float32))
        arguments = [*arguments, f"--{name}", f"{name}.npy"]
    assert run(["run", "naive", *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_g13_run_refuses_arrays_of_other_types(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(here / "a.npy", np.zeros((4, 4), np.float64))
    assert run(["run", "naive", "--device", "sim", "--a", "a.npy"]) == 2
    err = capsys.readouterr().err
    assert "A" in err and "float64" in err and "float32" in err


@pytest.mark.parametrize("content", [b"", b"not an array", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_no_array_is_status_2(content: bytes, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.npy").write_bytes(content)
    assert run(["run", "naive", "--a", "a.npy"]) == 2
    assert "a.npy for A" in capsys.readouterr().err


# --- what is loaded ---------------------------------------------------------------------------------------------------


@needs_nvrtc
def test_a_warm_compile_loads_no_cuda_no_numpy_and_no_rich(here: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from gemmgen.cli import run\n"
        "assert run(['compile', sys.argv[1], '-o', 'out']) == 0\n"
        "print(*{m.split('.')[0] for m in sys.modules}, file=sys.stderr)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GEMMGEN_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code, str(ladder_path("warptile"))]
    loaded = ""
    for _ in range(2):
        done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=True)
        loaded = done.stderr.splitlines()[-1]
    assert {"cuda", "numpy", "rich"}.isdisjoint(loaded.split())


@pytest.mark.parametrize("name", ["naive", "warptile", "tma", "splitk", "mma", "wgmma", "wgmma_store", "batched"])
@pytest.mark.parametrize("size", [(1000, 1000, 1000), (1001, 1001, 1001), (1000, 1001, 1000), (1001, 1000, 1000)])
def test_a_variant_has_one_name_by_which_compile_writes_what_explain_speaks_of(
    name: str, size: tuple[int, int, int]
) -> None:
    from gemmgen.analysis.printed import heading
    from gemmgen.cuda.emit import emit_cuda

    spec = gemmgen.load(name)
    found = gemmgen.explain(spec, *size)
    assert (
        f"{found.variant} variant" in " ".join(heading(found).split()) and found.to_dict()["variant"] == found.variant
    )
    assert gemmgen.emit(spec, variant=found.variant) == emit_cuda(found.ir)


@pytest.mark.parametrize(
    "name", ["fast", "guarded_", "guarded_unaligned_", "guarded_padded", "guarded_padded_C", "Exact"]
)
def test_a_variant_that_does_not_exist_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "naive", "--variant", name, "-o", "-"]) == 2
    assert "exact, guarded, guarded_unaligned" in capsys.readouterr().err
