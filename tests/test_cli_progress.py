"""Progress on a terminal: shown on stderr once work takes a second, and never in the way of what stdout gets.

No test waits: the timer that counts the second is replaced by one that rings at once, or never.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gemmgen.cli import output

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")


def on_terminal(*arguments: str) -> tuple[str, str]:
    """stdout, a pipe, and what a terminal at stderr was sent."""
    import pty

    main, other = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=other, env=environment, text=True
    )
    os.close(other)
    shown = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:  # the terminal's other end was closed
            break
        if not piece:
            break
        shown += piece
    out, _ = process.communicate()
    os.close(main)
    assert process.returncode == 0, shown
    return out, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode(errors="replace"))


TIMED = """
import sys, threading
from gemmgen.cli import output, run

class Timer:
    '''Rings when it is started, or never; what is then said is drawn at once.'''
    def __init__(self, seconds, ring):
        self.ring, self.finished, self.daemon = ring, threading.Event(), True
    def start(self):
        if {rings}:
            self.ring()
    def cancel(self):
        self.finished.set()

def update(self, doing, real=output.Progress.update):
    if self._shown is not None:
        self._shown[0].refresh()
    real(self, doing)
    if self._shown is not None:
        self._shown[0].refresh()

output.threading.Timer, output.Progress.update = Timer, update
"""
WORK = """
with output.progress("looking [closely]") as shown:
    shown.update("counting")
    output.result("a result")
"""


def test_it_is_shown_when_the_timer_rings_and_results_stay_on_stdout() -> None:
    out, shown = on_terminal("-c", TIMED.format(rings=True) + WORK)
    assert out == "a result\n"
    assert "looking [closely]" in shown and "counting" in shown and "a result" not in shown


def test_nothing_is_shown_of_quick_work() -> None:
    assert output.PROGRESS_AFTER_S == 1.0
    assert on_terminal("-c", TIMED.format(rings=False) + WORK) == ("a result\n", "")


def test_the_timer_rings_after_a_second_and_holds_no_process_up() -> None:
    timer = output.Progress("looking")._timer
    assert isinstance(timer, threading.Timer) and timer.interval == 1.0 and timer.daemon


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ablate", "vectorized", "--size", "512"], "vectorized without "),
        (["run", "warptile", "--device", "sim", "--size", "300", "-o", "OUT"], "running warptile 300x300x300"),
        (["ladder", "--size", "64"], "simulating "),
        (["explain", "warptile"], "explaining warptile"),
    ],
    ids=lambda x: x[0] if isinstance(x, list) else "",
)
def test_long_commands_show_what_they_do(arguments: list[str], said: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path) if a == "OUT" else a for a in arguments]
    out, shown = on_terminal("-c", f"{TIMED.format(rings=True)}\nsys.exit(run({arguments!r}))")
    assert said in shown
    assert arguments[1] in out or arguments[0] == "ladder"
    assert out.splitlines()[0] not in shown
