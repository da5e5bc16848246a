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
    tab.open(whole, width)
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
        tab.open(file, 1280, dark)
        assert (max(tab.run(ground)) < 60) is dark
        assert (min(tab.run(ink)) > 120) is dark


def test_the_keyboard_reaches_everything(tab: Browser, file: Path) -> None:
    tab.open(file, 1280)
    tab.press("Tab")
    first = "document.activeElement.className + ' ' + (document.activeElement.getBoundingClientRect().left >= 0)"
    assert tab.run(first) == "skip true", "the way past the navigation is the first stop, and is seen there"
    outlined = "getComputedStyle(document.activeElement).outlineStyle"
    seen = set()
    for _ in range(40):
        seen.add(tab.run("document.activeElement.tagName + '.' + document.activeElement.className"))
        assert tab.run(outlined) == "solid"
        tab.press("Tab")
    assert {"A.skip", "A.", "DIV.scroll", "PRE.code"} <= seen
    tab.run("document.querySelector('details:not([open]) > summary').focus()")
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
