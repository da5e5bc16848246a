"""A headless Chromium, spoken to over pipes by the DevTools protocol: enough to open a page and look at it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
PATIENCE_S = 60.0


def chromium() -> str | None:
    """The browser's path; None where there is none, or where a process cannot be given descriptors."""
    if os.name != "posix":
        return None
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """One tab. ``problems`` are its console's errors and warnings, and whatever it wanted from a network."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._pending = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._events.append(answer)

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._pending:
            assert time.monotonic() < until, "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser is gone"
            self._pending += data
        text, _, self._pending = self._pending.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def open(self, page: Path, width: int, dark: bool = False, media: str = "") -> None:
        """Open a file in a window ``width`` pixels wide, and wait until it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self._events):
            self._events.append(self._next())

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, file: Path, whole: bool = True) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])

    @property
    def problems(self) -> list[str]:
        self.call("Runtime.evaluate", expression="0")  # what was on its way has arrived
        found = []
        for event in self._events:
            params = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(str(params["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                    found.append(str(params["args"]))
                case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                    found.append(str(params["entry"]))
                case "Network.requestWillBeSent":
                    url = params["request"]["url"]
                    if not url.startswith(("file:", "data:", "about:")):
                        found.append(f"asked a network for {url}")
        return found


def _as_3_and_4(read: int, write: int) -> None:
    """In the new process: the browser reads commands from descriptor 3 and writes answers to descriptor 4."""
    import fcntl

    apart = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (read, write)]
    for descriptor, number in zip(apart, (3, 4), strict=True):
        os.dup2(descriptor, number)


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium of its own, with an empty profile; ended with the block. There must be one (see :func:`chromium`)."""
    path = chromium()
    assert path is not None
    to_read, write = os.pipe()
    read, to_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={profile}"],
            preexec_fn=lambda: _as_3_and_4(to_read, to_write),
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        try:
            yield Browser(write, read)
        finally:
            os.close(write)
            os.close(read)
            process.terminate()
            process.wait(30)
