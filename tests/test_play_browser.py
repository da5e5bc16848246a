"""The playground in a headless Chromium: edits, errors at their carets, completion, tabs, links, and no network."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from browser import FLAGS, chromium, missing

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.skipif(find_spec("nicegui") is None, reason="NiceGUI is missing: pip install 'gemmgen[play]'"),
]
WAIT = 90_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "gemmgen", "play", "regblock2d", "--no-browser", "--port", str(port)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env = {name: value for name, value in env.items() if not name.startswith(("NICEGUI_", "PYTEST_"))}
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, env=env) as server:
        url = f"http://127.0.0.1:{port}/"
        try:
            for _ in range(240):
                try:
                    urllib.request.urlopen(url, timeout=10).close()
                    break
                except OSError:
                    assert server.poll() is None
                    time.sleep(0.5)
            yield url
        finally:
            server.terminate()


@contextmanager
def page_of(url: str, width: int = 1280, dark: bool = False) -> Iterator[tuple[Any, list[str]]]:
    """A page, and what went wrong in it: errors in its console, and requests to elsewhere."""
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            page = started.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
            page.set_default_timeout(WAIT)
            page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
            page.on("pageerror", lambda e: wrong.append(str(e)))
            own = url.split("#")[0].removeprefix("http:")
            at_home = (f"http:{own}", f"ws:{own}", "data:", "blob:", "about:")
            page.on("request", lambda r: None if r.url.startswith(at_home) else wrong.append(f"asked for {r.url}"))
            page.goto(url)
            yield page, wrong
        finally:
            started.close()


def text_of(page: Any, name: str, expected: str) -> None:
    page.get_by_role("tab", name=name).click()
    page.locator(".pane", has_text=expected).first.wait_for()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_it_opens_with_the_cuda_and_asks_no_one_else(address: str, width: int, dark: bool) -> None:
    with page_of(address, width, dark) as (page, wrong):
        page.locator(".pane", has_text="__global__").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
        assert wrong == []


def test_an_edit_shows_its_mistake_completion_and_then_its_kernel(address: str) -> None:
    with page_of(address) as (page, wrong):
        page.locator(".pane", has_text="__global__").first.wait_for()
        page.get_by_text("Pin", exact=True).click()
        page.locator(".cm-content").click()
        page.keyboard.press("Control+End")
        page.keyboard.type("\nstag")
        page.locator(".problem", has_text="unknown setting 'stag'").wait_for()
        page.locator(".play-error", has_text="stag").wait_for()
        page.locator(".word", has_text="stages").click()
        page.locator(".cm-content", has_text="stages").wait_for()
        page.locator(".cm-content").click()
        page.keyboard.press("Control+End")
        page.keyboard.type(" 2")
        page.locator(".play-error").wait_for(state="detached")
        page.locator(".pane ins", has_text="STAGES").first.wait_for()
        assert wrong == []


def test_answers_take_back_nothing_that_was_typed(address: str) -> None:
    """Answers to earlier texts, with their marks, arrive while more is typed."""
    with page_of(address) as (page, wrong):
        page.locator(".pane", has_text="__global__").first.wait_for()
        page.locator(".cm-content").click()
        page.keyboard.press("Control+End")
        words = "\n" + " ".join(f"wrong{i}" for i in range(40))
        page.keyboard.type(words, delay=20)
        page.locator(".problem", has_text="wrong").first.wait_for()
        page.wait_for_timeout(1000)
        assert page.locator(".cm-line").last.inner_text() == words.strip()
        assert wrong == []


def test_the_tabs_answer(address: str) -> None:
    with page_of(address) as (page, wrong):
        text_of(page, "Tile program", "block tile of C")
        text_of(page, "Pictures", "Warp tile")
        text_of(page, "Counts", "to change:")
        text_of(page, "Simulator", "PASS")
        text_of(page, "Difference", "no spec is pinned")
        assert wrong == []


def test_the_link_opens_the_same_spec(address: str) -> None:
    with page_of(address) as (page, _):
        page.locator(".pane", has_text="__global__").first.wait_for()
        page.wait_for_function("location.hash.length > 20")
        before = page.evaluate("location.hash")
        page.locator(".cm-content").click()
        page.keyboard.press("Control+End")
        page.keyboard.insert_text("\n# shared")
        page.wait_for_function(f"location.hash !== {before!r}")
        link = page.url
    with page_of(link) as (page, _):
        page.locator(".cm-content", has_text="# shared").wait_for()


def test_other_hosts_and_origins_are_refused(address: str) -> None:
    for header in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(address, headers=header), timeout=20)
        assert refused.value.code == 403
