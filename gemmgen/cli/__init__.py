"""The command line, ``gemmgen``."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

# Nothing of gemmgen is imported here: an interrupt in the middle of that is reported by ``run`` too.


def main() -> None:
    """The console script: runs the command of sys.argv and exits with its status."""
    sys.unraisablehook = _unraisable
    status = run(sys.argv[1:])
    if status == 130:
        # At once: Python ends with the signal, not with a status, where the interrupt came upon text that was being
        # compiled.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _unraisable(ignored: sys.UnraisableHookArgs) -> None:
    """An interrupt that came upon a destructor or a callback is lost there: it is sent again, a moment later."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(ignored)


def run(arguments: Sequence[str]) -> int:
    """Run one command line (without the program's name) and return its exit status.

    0 fine; 1 a wrong result, a failed run or something missing; 2 a mistake in the spec or the command line; 130
    interrupted. Errors that a person can cause are printed on stderr, never raised.
    """
    try:
        from gemmgen.cli import streams

        streams.open_closed()
        streams.print_anything()
        from gemmgen.cli.app import app
        from gemmgen.cli.exits import INTERRUPTED, OK

        with _warnings_as_messages():
            status = app(list(arguments), prog_name="gemmgen", standalone_mode=False)
        sys.stdout.flush()
        if status == INTERRUPTED:  # what the command line's library makes of an interrupt
            raise KeyboardInterrupt
        return status if isinstance(status, int) else OK
    except BaseException as error:
        return report(error)


@contextlib.contextmanager
def _warnings_as_messages() -> Iterator[None]:
    """What is warned of meanwhile is a line on stderr, as any message is."""
    import warnings

    from gemmgen.cli.output import say

    before = warnings.showwarning
    warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
    try:
        yield
    finally:
        warnings.showwarning = before


def report(error: BaseException) -> int:
    """Print an error and return its status; raise it again where it is a bug."""
    from gemmgen.cli.exits import FAILED, OK, USAGE, message_of, status_of
    from gemmgen.cli.output import say
    from gemmgen.cli.streams import drop_stdout

    if isinstance(error, SystemExit) and isinstance(error.code, int):  # how completion ends
        return error.code
    if isinstance(error, OSError) and error.filename is None:
        drop_stdout()  # which took no more, most likely, and would be tried again as Python exits
        if isinstance(error, BrokenPipeError):  # its reader has left (``gemmgen ... | head``), by intent
            return FAILED
    status = status_of(error)
    if status is not None:
        say(message_of(error))
        return status
    show, code = getattr(error, "format_message", None), getattr(error, "exit_code", None)
    if show is None or not isinstance(code, int):
        raise error
    command = getattr(getattr(error, "ctx", None), "command_path", "gemmgen")
    text = show().replace("Value error, ", "")  # how pydantic begins what a check of gemmgen's own says
    if text:
        say(f"error: {text.rstrip('.')}; `{command} --help` explains the command")
    return USAGE if code else OK
