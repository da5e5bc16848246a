"""``explain``, ``banks`` and ``gpus`` as commands: what they say, exit statuses, JSON, help; field cases by number."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from gemmgen.cli import run
from gemmgen.cli.pattern import words_of
from gemmgen.report.banks import LEGEND
from gemmgen.target import GPUS, gpu, row_of

COMMANDS = ("explain", "banks", "gpus")
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def told_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(told(capsys, *arguments, "--json"))


# --- explain ----------------------------------------------------------------------------------------------------------


def test_explain_says_everything(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "explain", "regblock2d", "--size", "1024", "--gpu", "h200")
    first, verdict = out.split("\n\n")[:2]
    assert " ".join(first.split()) == (
        "regblock2d 1024x1024x1024, beta 0, on NVIDIA H200 SXM 141 GB: exact variant, 64 blocks of 256 threads"
    )
    labels = [line.split(":")[0] for line in verdict.splitlines() if not line.startswith(" ")]
    assert labels == ["limited by", "why", "to change"] and "Expected time: " in verdict.replace("\n  ", " ")
    for what in (
        "\nload A ", "\nstore B tile ", "4-way", "occupancy:", "limited by", "flop/byte", " limits ", "latency",
        "expected", "global access", "shared access", "CUDA",
    ):  # fmt: skip
        assert what in out, what
    assert "\nmain loop" in out and "FMAs per shared load" in " ".join(out.split())


def test_explain_json_is_only_json_and_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    found = told_json(capsys, "explain", "smem", "--size", "1023x1025x1027", "--beta", "1")
    assert (found["size"], found["variant"], found["gpu"]) == ([1023, 1025, 1027], "guarded", "h200")
    assert {"global", "shared", "fma", "accesses", "intensity", "bound", "occupancy", "registers"} < set(found)
    assert found["expected_s"] == pytest.approx(max_but_latency(found["bound"]) + found["bound"]["latency_s"])
    shared = found["shared_loads"]
    assert shared["written"]["wavefronts"] == found["shared"]["load"]["wavefronts"]
    assert shared["compiled"]["wavefronts"] < shared["written"]["wavefronts"]
    assert found["paragraph"].startswith("smem at 1023x1025x1027")


def test_explain_says_what_is_copied_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = told_json(capsys, "explain", "warptile", "--size", "1023x1025x1027")
    assert found["copies"] == {"A": 1023 * 1028 * 4, "B": 1027 * 1028 * 4}
    out = " ".join(told(capsys, "explain", "warptile", "--size", "1023x1025x1027").split())
    assert "before the launch A and B are copied to aligned rows, 8.43 MB" in out
    assert told_json(capsys, "explain", "warptile", "--size", "1024")["copies"] == {}


def max_but_latency(bound: dict[str, Any]) -> float:
    return float(max(v for name, v in bound.items() if name.endswith("_s") and name != "latency_s"))


def test_explain_without_a_compiler(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import gemmgen.runtime.nvrtc as nvrtc
    from gemmgen.diagnostics import CompileError

    def missing(*_: object, **__: object) -> None:
        raise CompileError("NVRTC is not installed")

    monkeypatch.setattr(nvrtc, "compile_cubin", missing)
    out = told(capsys, "explain", "smem", "--size", "512")
    assert "registers: unknown, the kernel was not compiled" in out and "main loop: SASS not inspected" in out
    assert "shared loads merged as far as possible (SASS not inspected)" in out
    assert told_json(capsys, "explain", "smem", "--size", "512")["registers"] is None


@pytest.mark.parametrize("size", ["0x64x64", "64x64x0", "1"])
def test_g07_explain_divides_by_nothing(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "explain", "warptile", "--size", size)
    assert "nan" not in out and "inf" not in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["explain", "missing.gemm"], "no file missing.gemm"),
        (["explain", "warptile", "--gpu", "h20"], "h200"),
        (["explain", "warptile", "--size", "12x"], "MxNxK"),
        (["explain"], "SPEC"),
        (["banks"], "--pattern"),
        (["banks", "smem", "--pattern", "lane"], "--pattern"),
        (["banks", "naive"], "shared memory"),
        (["banks", "smem", "--access", "0"], "1"),
        (["banks", "smem", "--access", "9"], "no access 9 to shared memory; they are 1 to 4"),
        (["banks", "smem", "--warp", "32"], "32"),
        (["banks", "--pattern", "lane", "--bytes", "12"], "4, 8 or 16"),
        (["banks", "--pattern", "line*2"], "lane"),
        (["banks", "--pattern", "lane -"], "expression"),
        (["banks", "--pattern", "lane - 1"], "negative"),
        (["banks", "--pattern", "lane / (lane - 3)"], "zero"),
        (["banks", "--pattern", "__import__('os')"], "understood"),
        (["banks", "--pattern", "1,2,x"], "'x'"),
        (["banks", "--pattern", ",".join("0" * 33)], "33"),
        (["gpus", "h20"], "h200"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err, err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_explains_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, command, "--help")
    assert f"\n    gemmgen {command}" in out
    for option in re.split(r"\n  (?=-)", out.split("Options:\n")[1].rstrip()):
        words = re.sub(r"^\s*(-\w, )?--[\w-]+( <[^>]*>| [A-Z][\w.,|-]*| MxNxK)?", "", option).split()
        assert len(words) >= 3, f"not explained: {option}"
    for option in re.findall(r"^    gemmgen .*?(--[a-z]+)", out, re.MULTILINE):
        assert option in out.split("Options:")[1]


def test_g22_explain_warns_of_spills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "big.gemm"
    spec.write_text("kernel big\ntile block 256x256x8\ntile thread 8x8\nuse coalescing, smem\n", encoding="utf-8")
    out = told(capsys, "explain", str(spec), "--size", "256x256x8").replace("\n", " ")
    assert "warning: spills: " in out and "1024 threads per block leave 64 registers per thread" in " ".join(
        out.split()
    )


def test_g27_flops_bytes_and_intensity(capsys: pytest.CaptureFixture[str]) -> None:
    for beta, nbytes, ideal in (("0", 8_387_072, 7.8139), ("1", 8_451_072, 7.7548)):
        found = told_json(capsys, "explain", "coalesced", "--size", "16x1000x2048", "--beta", beta)
        assert found["flops"] == 65_536_000
        assert found["intensity"]["ideal"] == pytest.approx(ideal, abs=5e-5)
        assert found["flops"] / found["intensity"]["ideal"] == pytest.approx(nbytes)
    assert told_json(capsys, "explain", "naive", "--size", "65536")["flops"] == 562_949_953_421_312


@pytest.mark.parametrize(
    ("name", "size", "sectors"),
    [
        ("naive", "1024", {"load A": 32, "load B": 1, "store C": 32}),
        ("coalesced", "1024", {"load A": 1, "load B": 4, "store C": 4}),
    ],
)
def test_s4_sectors_a_request(
    name: str, size: str, sectors: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = told_json(capsys, "explain", name, "--size", size)["accesses"]
    assert {f"{r['op']} {r['operand']}": r["sectors"] / r["requests"] for r in rows} == sectors


def test_s4_odd_rows_start_inside_a_sector() -> None:
    from gemmgen.isa.memory import sectors_of

    np = pytest.importorskip("numpy")
    row_1 = (1023 + np.arange(32, dtype=np.int64)[None, :]) * 4
    assert sectors_of(row_1, np.ones((1, 32), dtype=bool)).tolist() == [5]


def test_one_of_a_thing_is_no_plural(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "one.gemm"
    path.write_text("kernel one\ntile block 8x8x8\ntile thread 4x4\nuse smem, float4\npersistent 1\n", encoding="utf-8")
    out = told(capsys, "explain", str(path), "--size", "8", "--gpu", "h200")
    assert not re.search(r"\b1 (blocks|warps|wavefronts|requests|tiles|barriers|lanes|SMs)\b", out)
    assert "1 block of 4 threads, at most 1 tile of C per block" in " ".join(out.split())
    assert "1 wavefront, 1 without conflicts" in told(capsys, "banks", "--pattern", "lane")


def test_time_beside_the_bottleneck_is_exposed_latency(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(told(capsys, "explain", "coalesced", "--size", "4096", "--gpu", "h200").split())
    assert re.search(
        r"expected, \d+% \(modelled\).* The FMAs alone need [\d.]+ ms; [\d.]+ ms of the expected time are exposed", out
    )


def test_a_recorded_time_stands_beside_the_expected_one(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "explain", "coalesced", "--size", "4096", "--gpu", "h200")
    found = re.search(r"^measured: ([\d.]+ ms), ([\d.]+) times the expected time \(NVIDIA H200,", out, re.MULTILINE)
    assert found and re.search(rf"^measured +{found[1]} ", out, re.MULTILINE)
    recorded = json.loads((ROOT / "generated" / "h200" / "ladder.json").read_text(encoding="utf-8"))
    [seconds] = [r["median_s"] for r in recorded["rungs"] if r["kernel"] == "coalesced"]
    assert found[1] == f"{1e3 * seconds:.3g} ms"
    assert told_json(capsys, "explain", "coalesced", "--gpu", "h200")["measured"]["seconds"] == seconds
    for other in (["--size", "4095", "--gpu", "h200"], ["--size", "4096", "--gpu", "h100"]):
        assert "measured" not in told(capsys, "explain", "coalesced", *other)


# --- banks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bk", "pitch", "wavefronts"),
    [(8, 128, 2), (8, 132, 1), (8, 130, 2), (16, 128, 4), (16, 130, 1), (16, 132, 2), (32, 128, 8)],
)
def test_g19_transposed_store_of_a(bk: int, pitch: int, wavefronts: int, capsys: pytest.CaptureFixture[str]) -> None:
    lanes = bk // 4
    [found] = told_json(capsys, "banks", "--pattern", f"lane%{lanes}*4*{pitch} + lane/{lanes}", "--store")
    assert (found["wavefronts"], found["ideal_wavefronts"]) == (wavefronts, 1)
    assert max(phase["wavefronts"] for phase in found["phases"]) == wavefronts


@pytest.mark.parametrize(("pad", "ways"), [(0, 2), (4, 1)])
def test_g19_of_a_spec(pad: int, ways: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "kernel vec\ntile block 128x128x8\ntile thread 8x8\nuse coalescing, smem, transposeA, float4\n"
    path = tmp_path / "v.gemm"
    path.write_text(text + (f"pad_a {pad}\n" if pad else ""), encoding="utf-8")
    found = told_json(capsys, "banks", str(path))
    stores = [x for x in found if x["op"] == "store" and "As" in x["access"]]
    assert [x["ways"] for x in stores] == [ways]


def test_g19_totals_of_a_tile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for bk, total, ideal in ((8, 64, 32), (16, 256, 64)):
        text = f"kernel vec\ntile block 128x128x{bk}\ntile thread 8x8\nuse coalescing, smem, transposeA, float4\n"
        path = tmp_path / "v.gemm"
        path.write_text(text, encoding="utf-8")
        rows = told_json(capsys, "explain", str(path), "--size", f"128x128x{bk}")["accesses"]
        [store] = [r for r in rows if (r["operand"], r["op"], r["space"]) == ("A", "store", "shared")]
        assert (store["wavefronts"], store["requests"]) == (total, ideal)


def test_g19_fragment_of_a_transposed_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    transposed, plain = "lane/16*8", "lane/16*8*8"
    assert told_json(capsys, "banks", "--pattern", transposed)[0]["wavefronts"] == 1
    assert told_json(capsys, "banks", "--pattern", plain)[0]["wavefronts"] == 2


def test_banks_draws_a_conflict(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "banks", "--pattern", "lane*2")
    lines = out.splitlines()
    assert lines[0] == "pattern"
    assert lines[1].split() == ["bank", *(str(i) for i in range(32))]
    assert lines[2].split()[:4] == ["wavefront", "1", "0", "."]
    assert lines[3].split()[2] == "16"
    assert lines[4].startswith("2-way bank conflict") and " ".join(lines[5:]).split() == LEGEND.split()


def test_banks_numbers_the_accesses_that_it_draws_and_explains_cells_once(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "banks", "vectorized")
    assert re.findall(r"^access (\d+): (\w+ \w+ \w+)", out, re.MULTILINE) == [
        ("1", "store to As"), ("2", "store to Bs"), ("3", "load from As"), ("4", "load from Bs"),
    ]  # fmt: skip
    assert " ".join(out.split()).count(LEGEND) == 1 and len(LEGEND) < 120
    one = told(capsys, "banks", "vectorized", "--access", "3")
    assert one.startswith("access 3: load from As") and len(re.findall(r"^access [0-9]", one, re.M)) == 1


def test_banks_names_lanes_that_share_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "banks", "--pattern", "lane/16")
    assert out.splitlines()[2].startswith("wavefront 1  0+16+  .")
    assert "no bank conflict" in out


def test_banks_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen.analysis.banks import bank_map
    from gemmgen.report.banks import map_text

    conflict = map_text(bank_map([2 * lane for lane in range(32)]), colour=True)
    assert "\033[31m" in conflict and "\033[32m" not in conflict
    assert "\033[31m" not in map_text(bank_map(range(32)), colour=True)


def test_a_map_has_as_many_wavefronts_as_are_counted() -> None:
    from gemmgen.analysis.banks import bank_map

    cases = json.loads((Path(__file__).parent / "data" / "shared_memory_wavefronts.json").read_text(encoding="utf-8"))
    for row in cases["rows"]:
        m = bank_map(row["words"], int(row["op"][2:]) // 32, row["op"].startswith("st"))
        assert sum(p.wavefronts for p in m.phases) == m.wavefronts == row["wavefronts"]


def test_patterns() -> None:
    assert words_of("lane") == list(range(32))
    assert words_of("(lane ^ 1) & 3") == [(lane ^ 1) & 3 for lane in range(32)]
    assert words_of("0, -, 5") == [0, None, 5]


# --- gpus -------------------------------------------------------------------------------------------------------------


def test_gpus_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "gpus")
    assert all(f"\n{name} " in out for name in GPUS)
    assert {"a100", "a6000", "rtx3090", "rtx4090", "rtx5090", "l40s", "h100", "h200", "b200"} <= set(GPUS)
    assert "this machine has" in out


def test_gpus_names_every_source(capsys: pytest.CaptureFixture[str]) -> None:
    for name, row in GPUS.items():
        out = told(capsys, "gpus", name)
        words = " ".join(out.split())
        assert all(source in words for source in row.sources.values())
    found = told_json(capsys, "gpus", "h200")["gpus"]
    assert [g["name"] for g in found] == ["h200"] and found[0]["limits"]["warps"] == 64


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA RTX A6000", "a6000"), ("NVIDIA GeForce RTX 4090", "rtx4090"), ("NVIDIA L40S", "l40s"),
        ("NVIDIA B200", "b200"), ("Tesla T4", "t4"), ("NVIDIA GeForce GTX 1080", None),
    ],
)  # fmt: skip
def test_the_drivers_name_of_a_gpu(name: str, row: str | None) -> None:
    found = row_of(name)
    assert (found and found.name) == row
    assert row is None or gpu(row) is found


def test_bytes_of_a_lane_are_those_of_its_elements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "half.gemm"
    path.write_text(
        "kernel half\noperands A bf16, B bf16, C f32\ntile block 64x64x16\ntile warp 32x32\ntile thread 4x4\n"
        "use coalescing, smem, float4, warptile\n"
    )
    out = told(capsys, "banks", str(path))
    stores = [line for line in out.splitlines() if ": store to " in line]
    assert len(stores) == 2 and all(", 16 bytes per lane" in line for line in stores)
    assert "load from As, 2 bytes per lane" in out and "lanes load 2 bytes each" in " ".join(out.split())


@pytest.mark.parametrize(
    ("name", "by"), [("warptile", "float32"), ("mma_pipelined", "bf16 by mma"), ("wgmma", "bf16 by wgmma")]
)
def test_the_roofline_is_that_of_what_the_kernel_multiplies_with(name: str, by: str) -> None:
    from gemmgen.analysis.printed import traffic_text

    found = gemmgen.explain(gemmgen.load(name), 512, 512, 512, gpu="h200")
    ridge = {"warptile": 64.6, "mma_pipelined": 989.4 * 0.62, "wgmma": 989.4}[name] / 4.22
    said = " ".join(traffic_text(found).split())
    assert f"On this GPU, {by} is limited by arithmetic from " in said
    assert found.ridge == pytest.approx(ridge, rel=0.02)


@pytest.mark.parametrize("name", ["cpasync", "doublebuffer", "splitk", "tma", "skinny", "mma_pipelined"])
def test_every_access_that_is_drawn_has_lanes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also the copies of the main loop, which a product of one tile has none of."""
    assert run(["banks", name, "--json"]) == 0
    drawn = json.loads(capsys.readouterr().out)
    assert drawn and all(any(word is not None for word in x["words"]) for x in drawn)
