"""Where the output of a command goes: results on stdout, messages on stderr."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import LAYOUT, escaped

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner

PROGRESS_AFTER_S = 1.0
_COLOUR = re.compile("(\033\\[[0-9]{1,2}m)")


def say(message: str) -> None:
    """A message to the person, on stderr, safe to print; lost where stderr takes nothing."""
    if sys.stderr is not None:  # print() would take stdout instead
        with contextlib.suppress(OSError, ValueError):
            print(escaped(message, LAYOUT), file=sys.stderr, flush=True)


def result(text: str, coloured: bool = False) -> None:
    """A result, on stdout, safe to print: of control characters only gemmgen's own colours are left, where it has
    them."""
    parts = _COLOUR.split(text) if coloured else [text]
    print("".join(part if i % 2 else escaped(part, LAYOUT) for i, part in enumerate(parts)))


def print_json(value: Any) -> None:
    """One JSON document on stdout; numbers that JSON cannot say (NaN, infinity) become null."""
    import json

    print(json.dumps(finite(value), indent=2))


def finite(value: Any) -> Any:
    """The same value with every float that is not finite replaced by None."""
    match value:
        case float():
            return value if value - value == 0 else None
        case dict():
            return {str(key): finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case _:
            return value


def wrote(path: Path) -> None:
    """Say that a file was written."""
    say(f"wrote {escaped(str(path))}")


class Progress:
    """A line on the terminal that says what is being done, shown once the work has taken a second.

    Nothing is printed where stderr is no terminal, and nothing is imported by work that is quicker.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._shown: tuple[Live, Spinner] | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(PROGRESS_AFTER_S, self._show)
        self._timer.daemon = True

    def update(self, doing: str) -> None:
        """Say what is being done now."""
        with self._lock:
            self._doing = doing
            if self._shown is not None:
                from rich.text import Text

                self._shown[1].update(text=Text(escaped(doing)))

    def _show(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        with self._lock:
            if self._timer.finished.is_set():
                return
            spinner = Spinner("dots", Text(escaped(self._doing)))
            # What is printed meanwhile goes to stdout, which need not be the terminal.
            console = Console(stderr=True)
            live = Live(spinner, console=console, transient=True, redirect_stdout=False, refresh_per_second=12.5)
            self._shown = live, spinner
            live.start()

    def start(self) -> None:
        if sys.stderr.isatty():
            self._timer.start()

    def stop(self) -> None:
        self._timer.cancel()
        with self._lock:
            if self._shown is not None:
                self._shown[0].stop()


@contextlib.contextmanager
def progress(doing: str) -> Iterator[Progress]:
    """``with progress("compiling") as p:`` shows what is being done, where it takes over a second on a terminal."""
    shown = Progress(doing)
    shown.start()
    try:
        yield shown
    finally:
        shown.stop()
