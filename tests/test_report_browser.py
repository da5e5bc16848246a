"""The report in a headless Chromium: no error in its console, at every width, in the dark, by keyboard, on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser, missing
from reporthelp import rungs_at, some_at

from gemmgen.report.ladder import RUNGS
from gemmgen.report.page import modelled_gpu, page
from gemmgen.report.page.recorded import recorded

pytestmark = [pytest.mark.full, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

SHORT = ("naive", "regblock2d", "vectorized", "warptile")
OVERFLOWING = """
[...document.querySelectorAll("body *")].filter((e) =>
  e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 &&
  !e.parentElement.closest(".scroll, .code, nav, svg") && !e.matches(".skip, .defs"))
  .map((e) => e.outerHTML.slice(0, 90))
"""
CELLS_OUTSIDE = """
[...document.querySelectorAll("table.ladder td, table.ladder th")].filter((e) => e.checkVisibility()).filter((e) =>
  e.getBoundingClientRect().right > document.documentElement.clientWidth || e.scrollWidth > e.clientWidth + 1)
  .map((e) => e.outerHTML.slice(0, 90))
"""
CELLS_OVERLAPPING = """
[...document.querySelectorAll("table.ladder tbody tr")].flatMap((row) => {
  const cells = [...row.children].filter((e) => e.checkVisibility()).map((e) => [e, e.getBoundingClientRect()]);
  return cells.flatMap(([e, a], i) => cells.slice(i + 1).filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 1 && b.top < a.bottom - 1).map(([f]) => e.textContent + " over " + f.textContent));
})
"""
COVERED = """
[...document.querySelectorAll("svg.roofline")].flatMap((svg) => {
  const numbers = [...svg.querySelectorAll("circle.bubble")].map((c) => c.getBoundingClientRect());
  const texts = [...svg.querySelectorAll("text:not(.bubble-text):not([transform])")];
  const over = (a, b) => a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
  return [...numbers.flatMap((a, i) => numbers.slice(i + 1).filter((b) => over(a, b)).map(() => svg.id + ": numbers")),
    ...texts.filter((t) => numbers.some((a) => over(a, t.getBoundingClientRect()))).map((t) => svg.id + t.textContent)];
})
"""
TINY = """
[...document.querySelectorAll("svg:not(.defs)")].filter((e) => e.checkVisibility())
  .map((e) => [e.id, e.getBoundingClientRect()]).filter(([, r]) => r.width < 90 || r.height < 20).map(([id]) => id)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gpu = modelled_gpu(None)
    html = page(some_at((4096, 4096, 4096), SHORT), (4096, 4096, 4096), gpu)
    path = tmp_path_factory.mktemp("report") / "ladder.html"
    path.write_text(html, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All rungs, with the recorded times where they are here."""
    gpu, size = modelled_gpu(None), (4096, 4096, 4096)
    path = tmp_path_factory.mktemp("whole") / "ladder.html"
    path.write_text(page(list(rungs_at(size)), size, gpu, recorded(size)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as b:
        yield b


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_opens_without_an_error_and_fits(tab: Browser, file: Path, width: int, dark: bool) -> None:
    tab.open(file, width, dark)
    assert tab.problems == []
    assert tab.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert tab.run(OVERFLOWING) == []
    assert tab.run("document.querySelectorAll('section.rung').length") == len(SHORT)
    assert tab.run("document.querySelectorAll('svg:not(.defs)').length") > 5 * len(SHORT)
    assert tab.run(TINY) == []


@pytest.mark.parametrize("width", [320, 390, 600, 768, 1280])
def test_the_table_at_a_glance_fits_and_scrolls_nowhere(tab: Browser, whole: Path, width: int) -> None:
    tab.open(whole, width)
    assert tab.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert tab.run("document.querySelector('table.ladder').closest('.scroll')") is None
    assert tab.run(CELLS_OUTSIDE) == []
    assert tab.run(CELLS_OVERLAPPING) == []
    counts = "[...document.querySelectorAll('.counts .scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    assert tab.run(counts) == 0 or 480 < width < 1280
    named = "getComputedStyle(document.querySelector('.ladder td[data-label]'), '::before').content"
    headed = "getComputedStyle(document.querySelector('.ladder thead')).display"
    assert (tab.run(headed) == "none") is (tab.run(named) == '"time, measured"') is (width <= 768)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_numbers_of_the_rooflines_cover_neither_texts_nor_one_another(
    tab: Browser, whole: Path, width: int
) -> None:
    tab.open(whole, width, at="rooflines")
    assert tab.run("document.querySelectorAll('svg.roofline circle.bubble').length") == 2 * len(RUNGS)
    assert tab.run(COVERED) == []


def test_the_check_of_overflow_sees_one(tab: Browser, file: Path) -> None:
    tab.open(file, 390)
    tab.run("document.querySelector('h1').style.width = '500px'")
    assert tab.run(OVERFLOWING)


def test_the_dark_is_dark(tab: Browser, file: Path) -> None:
    ground = r"getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number)"
    ink = r"getComputedStyle(document.querySelector('svg .label')).fill.match(/\d+/g).map(Number)"
    for dark in (False, True):
        tab.open(file, 1280, dark, at="rooflines")
        assert (max(tab.run(ground)) < 60) is dark
        assert (min(tab.run(ink)) > 120) is dark


def test_the_keyboard_reaches_everything(tab: Browser, file: Path) -> None:
    tab.open(file, 1280)
    tab.press("Tab")
    first = "document.activeElement.className + ' ' + (document.activeElement.getBoundingClientRect().left >= 0)"
    assert tab.run(first) == "skip true", "the way past the navigation is the first stop, and is seen there"
    tab.open(file, 1280, at="rung-warptile")
    tab.press("Tab")
    outlined = "getComputedStyle(document.activeElement).outlineStyle"
    seen = set()
    for _ in range(45):
        seen.add(tab.run("document.activeElement.tagName + '.' + document.activeElement.className"))
        past_the_last = tab.run("document.activeElement === document.body")
        assert past_the_last or tab.run(outlined) == "solid"
        tab.press("Tab")
    assert {"A.", "PRE.code merged", "BUTTON.tool copy", "BUTTON.tool save", "INPUT.whole"} <= seen
    tab.run("document.querySelector('.current details:not([open]) > summary').focus()")
    assert tab.run("document.activeElement.parentElement.open") is False
    tab.press("Enter")
    tab.wait_until("document.activeElement.parentElement.open")


def test_a_link_to_a_line_of_a_closed_kernel_opens_it(tab: Browser, file: Path) -> None:
    tab.open(file, 1280)
    line = "document.querySelector('[id^=warptile-cuda-]')"
    assert tab.run(f"{line}.checkVisibility()") is False
    tab.run("document.querySelector('#rung-warptile table.accesses a[href*=cuda]').click()")
    tab.wait_until(f"{line}.checkVisibility()")


def test_printed_it_shows_what_was_closed(tab: Browser, file: Path) -> None:
    tab.open(file, 1280, media="print")
    closed = "document.querySelectorAll('details.access:not([open])').length"
    before = tab.run(closed)
    tab.run("dispatchEvent(new Event('beforeprint'))")
    assert before > 0 and tab.run(closed) == 0
    assert tab.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert tab.run("getComputedStyle(document.querySelector('.code')).maxHeight") == "none"
    tab.run("dispatchEvent(new Event('afterprint'))")
    assert tab.run(closed) == before
    assert tab.pdf().startswith(b"%PDF")


# --- A lesson: one section at a time -------------------------------------------------------------------------------

SHOWN = "[...document.querySelectorAll('main > section')].filter((s) => s.checkVisibility()).map((s) => s.id)"


def test_one_section_is_shown_and_the_arrows_lead_on(tab: Browser, file: Path) -> None:
    tab.open(file, 1280)
    assert tab.run(SHOWN) == ["table"]
    assert tab.run("document.querySelector('table.bars').getBoundingClientRect().top < 900"), "the chart comes first"
    tab.press("ArrowRight")
    tab.wait_until(f"{SHOWN}[0] === 'rung-naive'")
    tab.press("ArrowRight")
    tab.wait_until(f"{SHOWN}[0] === 'rung-regblock2d'")
    assert tab.run("location.hash") == "#rung-regblock2d"
    assert tab.run("document.querySelector('nav.rungs [aria-current]').textContent").endswith("regblock2d")
    tab.press("ArrowLeft")
    tab.wait_until(f"{SHOWN}[0] === 'rung-naive'")


@pytest.mark.parametrize("width", [390, 1280])
def test_each_section_is_short(tab: Browser, whole: Path, width: int) -> None:
    for at in ("table", "rooflines", *(f"rung-{rung.spec}" for rung in RUNGS), "sources"):
        tab.open(whole, width, at=at)
        assert tab.run("document.documentElement.scrollHeight / innerHeight") < 20, at
        assert tab.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), at
        assert tab.problems == [], at


def test_a_lane_lights_its_element_of_c_its_bank_and_its_lines(tab: Browser, file: Path) -> None:
    tab.open(file, 1280, at="rung-vectorized")
    tab.run("document.querySelectorAll('.current details').forEach((d) => { d.open = true; })")
    access = "document.querySelector('.current details.access svg.bank').closest('details.access')"
    point = "dispatchEvent(new PointerEvent('pointerover', { bubbles: true }))"
    tab.run(f"{access}.querySelector('[data-l=\"3\"]').{point}")
    said = tab.run("document.querySelector('.current .lane-bar output').textContent")
    assert said.startswith("lane 3 of warp 0 computes C at row 0, column 24 of the tile; bank ")
    assert "CUDA line " in said and "spec line " in said
    lit = "[...document.querySelectorAll('.current .lit')]"
    assert tab.run(f"{lit}.some((e) => e.dataset.c === '0 24')")
    assert tab.run(f"{lit}.filter((e) => e.matches('.line')).length") == 2
    line = "document.querySelector('.current .line[id*=cuda]')"
    tab.run(f"{line}.{point}")
    assert tab.run(f"{lit}.some((e) => e.matches('.access rect')) && {lit}.some((e) => e.matches('summary'))")


def test_the_steps_of_a_turn_are_walked_through(tab: Browser, whole: Path) -> None:
    tab.open(whole, 1280, at="rung-pipelined")
    box = "document.querySelector('.current .stepper')"
    press = f"[...{box}.querySelectorAll('button')].find((b) => b.textContent === '%s').click()"
    current = f"{box}.querySelector('[aria-current]')?.textContent ?? ''"
    assert tab.run(current) == "" and "tile t + 3" in tab.run(f"{box}.textContent")
    tab.run(press % "Next step")
    assert tab.run(current).startswith("all threads wait at full[0] until all bytes of tile 0")
    lit = "[...document.querySelectorAll('.current .lit')]"
    assert tab.run(f"{lit}.filter((e) => e.matches('.line')).length") == 1
    tab.run(press % "Next turn")
    tab.run(press % "Next step")
    assert tab.run(current).startswith("all threads multiply tile 1 from stage 1")
    assert tab.run(f"{lit}.map((e) => e.dataset.k)") == ["multiplied 1"]
    tab.run(press % "Previous step")
    assert "full[1]" in tab.run(current)
    tab.run(press % "Reset")
    assert tab.run(current) == "" and "tile t + 3" in tab.run(f"{box}.textContent")
    assert tab.run(f"{lit}.length") == 0 and tab.problems == []


def test_the_bar_of_lanes_covers_no_text_above_the_pictures(tab: Browser, whole: Path) -> None:
    tab.open(whole, 1280, at="rung-pipelined")
    box = "document.querySelector('.current %s').getBoundingClientRect()"
    assert tab.run(f"{box % '.lane-bar'}.top >= {box % '.cards'}.bottom")
    tab.run("document.querySelector('.current .stepper').scrollIntoView()")
    assert tab.run(f"{box % '.lane-bar'}.bottom <= {box % '.stepper'}.top")


def test_the_theme_is_switched_and_a_text_copied(tab: Browser, file: Path) -> None:
    tab.open(file, 1280, at="rung-warptile")
    ground = r"Math.max(...getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number))"
    theme = "document.querySelector('nav.rungs button')"
    assert tab.run(ground) > 200
    tab.run(f"({theme}.click(), {theme}.click())")
    assert tab.run(f"{theme}.textContent") == "Theme: dark" and tab.run(ground) < 60
    copy = "document.querySelector('.current button.copy')"
    tab.run(f"{copy}.click()")
    assert tab.run(f"{copy}.textContent") in ("Copied", "Select the text and copy it")
    assert tab.run("shownText(document.querySelector('.current pre.code'))").startswith("# Rung ")


def test_a_picture_is_saved_as_a_file_of_its_own(tab: Browser, file: Path) -> None:
    tab.open(file, 1280, at="rung-warptile")
    svg = tab.run("standalone(document.getElementById('warptile-warp'))")
    assert svg.startswith("<svg") and "xmlns" in svg and "<style" in svg and "--w0" in svg


def test_the_whole_kernel_and_its_instructions_are_shown_when_asked(tab: Browser, file: Path) -> None:
    tab.open(file, 1280, at="rung-warptile")
    lines = "[...document.querySelectorAll('.current .merged .line')].filter((l) => l.checkVisibility())"
    brief = tab.run(f"{lines}.length")
    assert tab.run(f"{lines}.some((l) => l.tagName === 'DEL')")
    tab.run("document.querySelector('.current .whole').click()")
    assert tab.run(f"{lines}.length") > brief and not tab.run(f"{lines}.some((l) => l.tagName === 'DEL')")


def test_on_paper_every_section_is_there_and_no_control(tab: Browser, file: Path) -> None:
    tab.open(file, 1280, media="print", at="rung-warptile")
    assert len(tab.run(SHOWN)) == tab.run("document.querySelectorAll('main > section').length") > len(SHORT)
    controls = "[...document.querySelectorAll('button, .lane-bar, .steps, .view label')]"
    assert tab.run(f"{controls}.length") > 0 and tab.run(f"{controls}.filter((e) => e.checkVisibility()).length") == 0
