"""A headless Chromium, driven by Playwright: enough to open a page and look at it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page, Request

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """The path of the system's browser; None where there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def missing() -> str | None:
    """Why no page can be opened here; None if it can."""
    if find_spec("playwright") is None:
        return "Playwright is missing: pip install playwright"
    if chromium() is None:
        return "Chromium is missing (Debian's package: chromium)"
    return None


class Browser:
    """One tab. ``problems`` are its console's errors and warnings, and whatever it wanted from a network."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.problems: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.problems.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "about:")):
            self.problems.append(f"asked a network for {request.url}")

    def open(self, file: Path, width: int, dark: bool = False, media: str | None = None, at: str = "") -> None:
        """Open a file (at the element ``at``) in a window ``width`` pixels wide, and wait until it is loaded."""
        self._page.set_viewport_size({"width": width, "height": 900})
        scheme: Any = "dark" if dark else "light"
        kind: Any = media or "null"  # "null": what the browser does by itself
        self._page.emulate_media(media=kind, color_scheme=scheme)
        self.problems.clear()
        self._page.goto("about:blank")
        self._page.goto(f"{file.as_uri()}#{at}" if at else file.as_uri(), wait_until="load")

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        return self._page.evaluate(script)

    def wait_until(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true."""
        self._page.wait_for_function(condition)

    def press(self, key: str) -> None:
        self._page.keyboard.press(key)

    def pdf(self) -> bytes:
        return self._page.pdf()


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium of its own, with an empty profile; ended with the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield Browser(started.new_page())
        finally:
            started.close()
