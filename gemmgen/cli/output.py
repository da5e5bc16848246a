"""Where the output of a command goes: results on stdout, messages on stderr, files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner

PROGRESS_AFTER_S = 1.0


def say(message: str) -> None:
    """A message to the person, on stderr."""
    print(message, file=sys.stderr)


def result(text: str) -> None:
    """A result, on stdout."""
    print(text)


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


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file or nothing: into a temporary file beside it, which then takes its place.

    Makes the directory where there is none. Raises OSError that names ``path``, and leaves no temporary file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_with(path, data)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error


def replace_with(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode_of(path))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def mode_of(path: Path) -> int:
    """Permissions for a file to be written: those of the one it replaces, else what the umask leaves of 666."""
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


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

                self._shown[1].update(text=Text(doing))

    def _show(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        with self._lock:
            if self._timer.finished.is_set():
                return
            spinner = Spinner("dots", Text(self._doing))
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
