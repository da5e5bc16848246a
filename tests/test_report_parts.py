"""What the report is made of: who computes what, what lanes touch, what differs, and figures from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from page import read

import gemmgen
from gemmgen.analysis.accesses import THREAD, Access, launch_grid, sites
from gemmgen.analysis.classes import evaluate
from gemmgen.diagnostics import GemmgenError
from gemmgen.ir.variant import EXACT
from gemmgen.isa import memory
from gemmgen.report.ladder import RUNGS, Rung
from gemmgen.report.page import code, modelled_gpu, page, recorded, words
from gemmgen.report.page.facts import facts
from gemmgen.report.page.lanemap import lane_map, lanes_text
from gemmgen.report.page.patterns import Pattern, patterns, phases, runs, sectors
from gemmgen.report.page.split import areas, owners, pieces
from gemmgen.spec.ladder import LADDER, ladder_path
from gemmgen.spec.model import Spec
from gemmgen.tile import build

SIZE = (4096, 4096, 4096)
NAMES = [rung.spec for rung in RUNGS]
CSS = Path(code.__file__).parent / "templates" / "picture.css"
SCALARS = {"M": 4096, "N": 4096, "K": 4096, "lda": 4096, "ldb": 4096, "ldc": 4096, "beta": 0.0}

PIPELINES = {
    "cpasync": """kernel pipeline_cpasync
tile   block  128x128x16
tile   warp   64x64
tile   thread 8x4
use    coalescing, smem, transposeA, float4, warptile, cpasync, prefetch, spread
stages 3
pad_a  4
""",
    "tma": """kernel pipeline_tma
tile   block  128x128x32
tile   warp   32x128
tile   thread 1x4
use    coalescing, smem, float4, warptile(m_iter=8, n_iter=4), tma, alongK, smemSwizzle, prefetch
stages 3
""",
    "column": """kernel columns
tile     block  64x32x16
tile     thread 4x2
use      smem
operands A f32 col, B f32 col, C f32 row
""",
}
SPECS: dict[str, Spec] = {name: gemmgen.load(ladder_path(name)) for name in LADDER} | {
    name: gemmgen.parse(text) for name, text in PIPELINES.items()
}
every_spec = pytest.mark.parametrize("name", SPECS)


# --- Who computes what ------------------------------------------------------------------------------------------------


@every_spec
def test_pieces_of_threads_are_what_the_kernel_stores(name: str) -> None:
    """The picture is drawn from the tile program, the kernel from the IR: they are one split of the tile."""
    spec = SPECS[name]
    program, ir = build(spec, EXACT), gemmgen.lower(spec)
    drawn = {thread: set() for thread in range(program.threads)}  # type: dict[int, set[tuple[int, int]]]
    for thread, cells in drawn.items():
        for p in pieces(program, thread):
            cells |= {(p.row + i, p.col + j) for i in range(p.rows) for j in range(p.cols)}
    stored = {thread: set() for thread in range(program.threads)}  # type: dict[int, set[tuple[int, int]]]
    for site in sites(ir, SCALARS, launch_grid(ir, SCALARS)):
        if isinstance(site, Access) and site.array.operand == "C" and site.op == "store":
            for thread, address in addresses(site, ir.threads):
                stored[thread] |= {(address // 4096, address % 4096 + v) for v in range(site.width)}
    assert drawn == stored
    assert sum(map(len, drawn.values())) == spec.block[0] * spec.block[1] == len(set().union(*drawn.values()))


def addresses(site: Access, threads: int) -> list[tuple[int, int]]:
    """(thread, element of C) of every store by block (0, 0)."""
    inner = [a for a in site.axes if not a.index.name.startswith("blockIdx")]
    values = {a.index.name: np.zeros((), dtype=np.int64) for a in site.axes}
    for position, axis in enumerate(inner):
        shape = [1] * (len(inner) + 1)
        shape[position] = axis.count
        values[axis.index.name] = np.arange(axis.count, dtype=np.int64).reshape(shape)
    numbers = np.arange(threads, dtype=np.int64)
    found = np.broadcast_to(
        evaluate(site.address, {**values, THREAD: numbers}), (*(a.count for a in inner), threads)
    ).reshape(-1, threads)
    return [(t, int(row[t])) for row in found for t in range(threads)]


@every_spec
def test_areas_cover_the_block_once(name: str) -> None:
    program = build(SPECS[name], EXACT)
    by_area = {
        (area.row + i, area.col + j): area.warp
        for area in areas(program)
        for i in range(area.rows)
        for j in range(area.cols)
    }
    assert sum(a.rows * a.cols for a in areas(program)) == len(by_area)
    assert by_area == {at: thread // 32 for at, thread in owners(program).items()}


# --- What lanes touch -------------------------------------------------------------------------------------------------


def found(name: str) -> list[Pattern]:
    return [p for _, p in patterns(gemmgen.lower(SPECS[name]), SCALARS) if p is not None]


@every_spec
def test_what_is_drawn_is_what_the_hardware_counts(name: str) -> None:
    shown = found(name)
    assert shown
    for p in shown:
        if p.access.array.space == "shared":
            store = p.access.op == "store"
            served = phases(p)
            assert sum(len(phase.turns) for phase in served) == memory.shared_wavefronts(p.words, p.width, store)
            words = {(lane, word) for phase in served for t in phase.turns for word, ls in t.values() for lane in ls}
            assert all(word % 32 == bank for phase in served for t in phase.turns for bank, (word, _) in t.items())
        else:
            active = np.array([[a is not None for a in p.addresses]])
            places = np.array([[a or 0 for a in p.addresses]])
            assert len(sectors(p)) == memory.sectors_of(places, active, p.nbytes)[0]
            words = {(lane, word) for word, lanes in p.lanes_by_word().items() for lane in lanes}
        asked = {(lane, w + i) for lane, w in enumerate(p.words) if w is not None for i in range(p.width)}
        assert words == asked


@every_spec
def test_the_worst_warp_is_drawn(name: str) -> None:
    """Totals of the whole product are not worse than the drawn warp times their requests."""
    ir = gemmgen.lower(SPECS[name])
    e = facts(0, Rung(name, "", ""), SPECS[name], SIZE, modelled_gpu(None)).explanation
    assert e is not None
    costs = [c for c in e.counts.accesses if c.cost.requests and c.space != "tma"]
    shown = [p for _, p in patterns(ir, SCALARS) if p is not None]
    shown = [p for p in shown if p.access.op == "store" or p.access.array.operand != "C"]  # beta 0: C is not read
    assert len(costs) == len(shown) + (2 if SPECS[name].split_k > 1 else 0)  # the kernel that adds up is not drawn
    for cost, p in zip(costs, shown, strict=False):
        each = memory.shared_wavefronts(p.words, p.width, p.access.op == "store") if cost.space == "shared" else 0
        assert cost.cost.wavefronts <= each * cost.cost.requests
        assert cost.cost.sectors <= len(sectors(p)) * cost.cost.requests or cost.space == "shared"


def test_the_text_beside_a_picture_says_the_same() -> None:
    load = next(p for p in found("regblock2d") if p.access.array.name == "Bs" and p.access.op == "load")
    assert runs(load) == ["lanes 0 to 15: words 0, 8, ... 120", "lanes 16 to 31: words 0, 8, ... 120"]
    drawn = lane_map(load, "x", "load of B")
    assert "4 wavefronts, 1 without conflicts: a 4-way bank conflict" in drawn.caption and drawn.ways == 4
    assert drawn.svg.count('class="cells conflict"') == 3 and drawn.svg.count("<rect") == 16 + 4
    naive = lane_map(found("naive")[0], "y", "load of A")
    assert "32 sectors of 32 bytes in 32 lines of 128; 128 of 1,024 bytes moved are used (12%)" in naive.caption
    assert naive.alternative == "lanes 0 to 31: words 0, 4096, ... 126976"
    assert lanes_text([3]) == "lane 3" and lanes_text([3, 4]) == "lanes 3 to 4" and lanes_text([1, 9]) == "lanes 1, 9"


def test_inactive_lanes_are_named() -> None:
    access = found("smem")[0].access
    words = (None, None, 7, 9, *[None] * 28)
    p = Pattern(access, 0, tuple(None if w is None else 4 * w for w in words), 4)
    assert runs(p) == ["lanes 0 to 1: inactive", "lanes 2 to 3: words 7 and 9", "lanes 4 to 31: inactive"]
    assert "8 of 64 bytes" in lane_map(p, "z", "load").caption


# --- What differs -----------------------------------------------------------------------------------------------------


def test_the_difference_of_two_specs_in_words() -> None:
    naive, smem, regblock1d, warptile = (SPECS[name] for name in ("naive", "smem", "regblock1d", "warptile"))
    assert words.spec_delta(None, naive) == []
    assert words.spec_delta(smem, smem) == []
    assert words.spec_delta(smem, regblock1d) == ["tile block 32x32x32 → 64x64x8", "+ tile thread 8x1"]
    assert words.spec_delta(warptile, regblock1d) == [
        "\u2212 float4", "\u2212 transposeA", "\u2212 warptile",
        "tile block 128x128x16 → 64x64x8", "\u2212 tile warp 64x64", "tile thread 8x4 → 8x1",
        "\u2212 unroll 8", "\u2212 min_blocks 3",
    ]  # fmt: skip
    assert "+ stages 3" in words.spec_delta(warptile, SPECS["cpasync"])
    pieces = words.spec_delta(warptile, warptile.replace(m_iter=2, n_iter=2))
    assert pieces == ["warptile 1x4 pieces → 2x2 pieces"] and list(words.meanings(pieces)) == ["warptile"]


def test_numbers_of_a_step_are_those_of_the_counts() -> None:
    gpu = modelled_gpu(None)
    one, two = (facts(i, RUNGS[i], SPECS[NAMES[i]], SIZE, gpu) for i in (NAMES.index("coalesced"), NAMES.index("smem")))
    told = words.numbers(two.explanation, one.explanation)
    assert "flop per byte of global memory 32× more" in told
    assert one.explanation is not None and two.explanation is not None
    totals = [
        sum(f.explanation.counts.total("global", op).sectors for op in ("load", "store"))
        for f in (one, two)
        if f.explanation
    ]
    assert f"global sectors {totals[0] / totals[1]:.3g}× less" in told


def test_a_name_that_is_also_a_toggle_is_no_difference() -> None:
    before, after = "kernel smem\nuse smem\n", "kernel other\nuse smem\n"
    assert [line.mark for line in code.marked(after, before, code.spec_html, ("smem", "other"))] == ["same", "same"]


def test_changes_leave_out_what_is_the_same() -> None:
    old = [f"line {i}" for i in range(20)]
    new = [*old[:10], "new", *old[12:]]
    lines = code.marked("\n".join(new), "\n".join(old), code.tile_html, ("a", "b"))
    shown = code.focused(lines, (0, 0), {11: "1 MOV"})
    assert [(line.number, line.mark) for line in shown if not line.far] == [
        (9, "same"), (10, "same"), (11, "removed"), (12, "removed"), (11, "added"), (12, "same"), (13, "same"),
    ]  # fmt: skip
    assert [line.number for line in shown if line.gap] == [9]
    assert [(line.number, line.mark) for line in shown if line.sass] == [(11, "added")]
    assert [line.html for line in code.whole(lines)] == new


def test_pipelines_are_drawn_too() -> None:
    gpu = modelled_gpu(None)
    rungs = [
        facts(i, Rung(name, "", "more"), SPECS[name], SIZE, gpu) for i, name in enumerate(("warptile", *PIPELINES))
    ]
    root = read(page(rungs, SIZE, gpu))
    assert all(f.check.ok and f.check.counts_agree for f in rungs)
    tma = root.by_id("rung-tma")
    assert "TMA boxes of A" in tma.text and len(list(tma.all("svg", "tile"))) == 3
    assert list(tma.all("svg", "lanes")) and list(root.by_id("rung-cpasync").all("svg", "lanes"))


# --- Figures from elsewhere -------------------------------------------------------------------------------------------


def test_recorded_runs_are_found_by_size(tmp_path: Path) -> None:
    file = tmp_path / "ladder.json"
    assert recorded.recorded(SIZE, file) is None
    row = {"kernel": "naive", "median_s": 0.5, "gflops": 500.0, "percent_of_cublas": None}
    one, two = ({"size": [n] * 3, "gpu": "NVIDIA Play", "baseline": None, "rungs": [row]} for n in (64, 4096))
    file.write_text(json.dumps([one, two]))
    found, other = recorded.recorded(SIZE, file), recorded.recorded((7, 7, 7), file)
    assert found is not None and other is not None
    assert found.size == SIZE and other.size == (64, 64, 64) and found.cublas is None
    assert found.times["naive"] == recorded.Time(0.5, 0.5, None)
    file.write_text(json.dumps(two))
    assert recorded.recorded(SIZE, file) == found
    for bad in ("{", "[1]", '{"size": [1]}', "[[]]"):
        file.write_text(bad)
        with pytest.raises(GemmgenError, match=r"ladder\.json: not a run recorded"):
            recorded.recorded(SIZE, file)


def test_what_is_recorded_here_can_be_read() -> None:
    found = recorded.recorded(SIZE)
    assert found is None or set(found.times) & set(NAMES)


def test_the_gpu_that_is_modelled() -> None:
    names = {"NVIDIA H200": "h200", "NVIDIA GeForce RTX 4090": "rtx4090", "NVIDIA H100 80GB HBM3": "h100"}
    assert {text: modelled_gpu(text).name for text in names} == names
    assert modelled_gpu("Another").name == modelled_gpu(None).name == "h200"


def test_colours_can_be_told_apart() -> None:
    """Text against its ground, 4.5 to 1 at least, in the light and in the dark (WCAG 2.2, level AA)."""
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", CSS.read_text(encoding="utf-8"))
    themes = [{name: pair[i] for name, *pair in found} for i in (0, 1)]
    pairs = [
        *((ink, ground) for ink in ("ink", "soft", "link") for ground in ("bg", "panel", "code")),
        *((kind, f"{kind}-bg") for kind in ("measured", "simulated", "modelled")),
        *((f"tok-{kind}", ground) for kind in "ktcnpf" for ground in ("code", "add", "del")),
        *(("ink", ground) for ground in ("add", "del", "w0", "w1", "w2", "w3", "w4", "w5")),
        ("good-ink", "good"), ("bad-text", "bg"), ("bad-ink", "bad"), ("add-ink", "add"), ("del-ink", "del"),
        ("bg", "mine"), ("bg", "accent"),
    ]  # fmt: skip
    for colours in themes:
        poor = {(a, b): round(contrast(colours[a], colours[b]), 2) for a, b in pairs}
        assert not {pair: ratio for pair, ratio in poor.items() if ratio < 4.5}


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
