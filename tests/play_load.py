"""Twenty edits a second into the playground, and how soon its answers come: a benchmark, run by hand.

    python tests/play_load.py [SECONDS]        needs NiceGUI, Playwright and Chromium

It prints the latency of single edits (median, 95th of 100, largest), the memory of the server before and after, and
whether the last answer is right.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from browser import FLAGS, chromium

SPEC = "kernel {}\ntile block 32x32x16\nuse coalescing, smem"
SINGLE = 40


def memory(process: int) -> int:
    """Resident MB of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096 >> 20


def answers(port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def put(page: Any, text: str) -> None:
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def latency(page: Any, number: int) -> float:
    """Seconds from an edit to the answer to it."""
    before = page.evaluate("location.hash")
    start = time.perf_counter()
    put(page, SPEC.format(f"single{number}"))
    page.wait_for_function("before => location.hash !== before", arg=before, polling=5)
    return time.perf_counter() - start


def main(seconds: float) -> None:
    from playwright.sync_api import sync_playwright

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "gemmgen", "play", "--no-browser", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            while not answers(port):
                time.sleep(0.1)
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{port}/")
            page.locator(".pane", has_text="__global__").first.wait_for()
            page.locator(".cm-content").click()
            found = sorted(latency(page, i) for i in range(SINGLE))
            print(f"latency: median {statistics.median(found):.3f} s, 95% {found[int(0.95 * SINGLE)]:.3f} s, "
                  f"largest {found[-1]:.3f} s")  # fmt: skip
            before, edits, end = memory(server.pid), 0, time.time() + seconds
            while time.time() < end:
                put(page, SPEC.format(f"k{edits}"))
                edits += 1
                page.wait_for_timeout(50)
            put(page, SPEC.format("final"))
            page.locator(".status", has_text="final: 1024 threads").wait_for(timeout=10_000)
            print(
                f"{edits} edits in {seconds:g} s, the last answer is right; {before} MB, then {memory(server.pid)} MB"
            )
        finally:
            browser.close()
            server.terminate()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
