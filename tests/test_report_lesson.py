"""The page as a lesson: timeline, SASS beside its source, pages of one's own specs, pictures as files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page import read

import gemmgen
from gemmgen.cli import run
from gemmgen.ir.variant import EXACT
from gemmgen.report.page.sasslines import counted_by_line
from gemmgen.report.page.timeline import SHOWN, bars, timeline
from gemmgen.tile import build

SASS = """
	//## File "/x/k.cu", line 7
        /*0010*/                   FFMA R1, R2, R3, R1 ;
        /*0020*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0030*/                   FFMA R1, R2, R3, R1 ;
	//## File "/x/k.cu", line 9
        /*0040*/                   LDS.128 R4, [R2] ;
"""


def test_instructions_are_counted_by_line() -> None:
    assert counted_by_line(SASS) == {7: "2 FFMA, 1 LDG.128", 9: "1 LDS.128"}
    many = SASS + "".join(f"        /*01{i}0*/    OP{chr(65 + i)} R1 ;\n" for i in range(6))
    assert counted_by_line(many)[9].endswith(", 3 more")


@pytest.mark.parametrize("name", ["doublebuffer", "cpasync", "tma", "pipelined"])
def test_a_stage_is_copied_before_it_is_multiplied_and_never_both_at_once(name: str) -> None:
    p = build(gemmgen.load(name), EXACT)
    drawn = bars(p)
    stages = p.pipeline.depth
    assert {b.row for b in drawn} >= set(range(stages))
    for b in drawn:
        assert 0 <= b.start < b.end <= SHOWN and (b.row == b.tile % stages or b.row == stages)
    for one in drawn:
        for other in drawn:
            if one is not other and one.row == other.row:
                assert one.end <= other.start or other.end <= one.start, (one, other)
    picture = timeline(p, name)
    assert picture is not None and f"{stages} stages" in picture.caption and 'class="timeline"' in picture.svg


def test_a_kernel_without_stages_has_no_timeline() -> None:
    assert timeline(build(gemmgen.load("warptile"), EXACT), "x") is None
    assert timeline(build(gemmgen.load("naive"), EXACT), "x") is None


OWN = "kernel mine\ntile block 32x32x16\nuse coalescing, smem\n"


def test_a_page_of_ones_own_specs_for_another_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.gemm").write_text(OWN)
    file = tmp_path / "page.html"
    arguments = ["report", "smem", str(tmp_path / "mine.gemm"), "-o", str(file), "--size", "512x256x128"]
    assert run([*arguments, "--gpu", "a6000"]) == 0
    assert capsys.readouterr().err.endswith(f"wrote {file}\n")
    html = file.read_text(encoding="utf-8")
    root = read(html)
    assert "RTX A6000" in root.text and "512×256×128" in root.text
    assert "ladder" not in next(root.all("header", "top")).text and "Next rung" not in root.text
    assert [s.attributes["id"] for s in root.all("section", "rung")] == ["rung-smem", "rung-mine"]
    assert "Compared with smem" in root.by_id("rung-mine").text
    ids = [e.attributes["id"] for e in root.all() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    assert {a.attributes["href"][1:] for a in root.all("a")} <= set(ids)


def test_a_kernel_of_tensor_cores_has_a_page_too(tmp_path: Path) -> None:
    fixture = Path(__file__).parent / "fixtures" / "valid" / "mma_bf16.gemm"
    file = tmp_path / "page.html"
    assert run(["report", str(fixture), "-o", str(file)]) == 0
    text = read(file.read_text(encoding="utf-8")).text
    assert "Not drawn: a." in text and "nothing to multiply" not in text
    assert all(
        float(part) <= 100 / 1.4 for part in re.findall(r'fill lesson" style="width:([\d.]+)%', file.read_text())
    )


def test_what_a_gpu_lacks_is_said_and_the_rest_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "page.html"
    assert run(["report", "tma", "-o", str(file), "--gpu", "a6000"]) == 0
    assert "note: tma is not counted: tma does not run on" in capsys.readouterr().err
    assert "Not counted: tma does not run on" in file.read_text(encoding="utf-8")


def test_two_specs_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "smem", "smem", "-o", str(tmp_path / "x.html")]) == 2
    assert "two specs are named smem" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


# --- Pictures as files -----------------------------------------------------------------------------------------------


def test_pictures_are_files_that_need_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["picture", "cpasync", "-o", str(tmp_path)]) == 0
    names = sorted(f.name for f in tmp_path.glob("*.svg"))
    assert {"cpasync-block.svg", "cpasync-warp.svg", "cpasync-thread.svg", "cpasync-timeline.svg"} <= set(names)
    assert sum("-access-" in name for name in names) >= 5
    for file in tmp_path.glob("*.svg"):
        text = file.read_text(encoding="utf-8")
        assert text.startswith('<svg xmlns="http://www.w3.org/2000/svg"') and "var(" not in text
        assert "light-dark" not in text and re.search(r"url\((?!#)", text) is None


def test_one_picture_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["picture", "cpasync", "-o", str(tmp_path), "--only", "warp,timeline"]) == 0
    assert sorted(f.name for f in tmp_path.iterdir()) == ["cpasync-timeline.svg", "cpasync-warp.svg"]
    assert run(["picture", "cpasync", "-o", str(tmp_path), "--only", "wrap"]) == 2
    assert "block, warp, thread, timeline, banks, sectors" in capsys.readouterr().err
