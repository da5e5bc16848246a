"""Progress on a terminal: shown on stderr once work takes a second, and never in the way of what stdout gets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


SLOW = """
import time
from gemmgen.cli import output
with output.progress("looking [closely]") as shown:
    time.sleep({seconds})
    shown.update("counting")
    time.sleep(0.2)
    output.result("a result")
"""


def test_it_is_shown_after_a_second_and_results_stay_on_stdout() -> None:
    out, shown = on_terminal("-c", SLOW.format(seconds=1.3))
    assert out == "a result\n"
    assert "looking [closely]" in shown and "counting" in shown and "a result" not in shown


def test_nothing_is_shown_of_quick_work() -> None:
    assert on_terminal("-c", SLOW.format(seconds=0.1)) == ("a result\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ablate", "vectorized", "--size", "512"], "vectorized without "),
        (["run", "warptile", "--device", "sim", "--size", "300", "-o", "OUT"], "running warptile 300x300x300"),
        (["ladder", "--size", "64"], "simulating "),
        (["explain", "warptile"], "explaining warptile"),
    ],
)
def test_long_commands_show_what_they_do(arguments: list[str], said: str, tmp_path: Path) -> None:
    """At once here, so that no work has to take a second."""
    arguments = [str(tmp_path) if a == "OUT" else a for a in arguments]
    hurry = "from gemmgen.cli import output, run; import sys; output.PROGRESS_AFTER_S = 0.0; "
    out, shown = on_terminal("-c", f"{hurry}sys.exit(run({arguments!r}))")
    assert said in shown
    assert arguments[1] in out or arguments[0] == "ladder"
    assert out.splitlines()[0] not in shown
