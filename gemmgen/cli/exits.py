"""Exit statuses, and the one line a person reads when something goes wrong."""

from __future__ import annotations

from gemmgen.diagnostics import ArgumentError, GemmgenError, SpecError, escaped

OK = 0
FAILED = 1
"""A wrong result, a failed run, or something missing: a GPU, NVRTC, a permission."""
USAGE = 2
"""A mistake in the spec or on the command line, a missing file included."""
INTERRUPTED = 130


class UsageError(GemmgenError):
    """A mistake on the command line."""


def status_of(error: BaseException) -> int | None:
    """The exit status for an error that a person can cause; None for one that they cannot (a bug)."""
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED
        case SpecError() | ArgumentError() | UsageError():
            return USAGE
        case GemmgenError() | OSError() | MemoryError():
            return FAILED
        case _:
            return None


def message_of(error: BaseException) -> str:
    """What to print on stderr for such an error."""
    match error:
        case KeyboardInterrupt():
            return "interrupted"
        case SpecError():
            return str(error)
        case OSError(filename=str() as name, strerror=str() as why):
            return f"error: {escaped(name)}: {why[:1].lower()}{why[1:]}"
        case OSError(filename=None, strerror=str() as why):
            return f"error: {why[:1].lower()}{why[1:]}"
        case MemoryError():
            return "error: not enough memory; a smaller --size needs less"
        case _:
            return f"error: {error}"
