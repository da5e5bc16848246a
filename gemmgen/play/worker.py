"""A child process that answers questions: a line of JSON in, a line of JSON out, with limits on memory and files.

    python -m gemmgen.play.worker

A question may say how many seconds of processor time it may take: a timer then ends the process, even inside a
compiler. Time of the clock is its parent's business.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys

from gemmgen.play.answers import answer, failed

MEMORY = 6 << 30
"""Bytes of address space. NVRTC and NumPy reserve far more than they use."""
FILE = 64 << 20
"""Bytes of a file: a cache entry fits."""
LARGEST = 8 << 20
"""Characters of an answer."""


WARM = {"kind": "texts", "text": "kernel warm\ntile block 16x16\n"}


def limit() -> None:
    """Limits of this process and whatever it starts; none where the system knows none."""
    try:
        import resource
    except ImportError:
        return
    for what, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, FILE), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):
            _, most = resource.getrlimit(what)
            resource.setrlimit(what, (value if most == resource.RLIM_INFINITY else min(value, most),) * 2)


def timed(seconds: object) -> None:
    """End this process after so many seconds of processor time; 0 takes that back. Nothing where the system has no such
    timer."""
    if hasattr(signal, "ITIMER_PROF") and isinstance(seconds, int | float):
        signal.setitimer(signal.ITIMER_PROF, float(seconds))


def reply(line: str) -> str:
    """The answer to a line, whatever it is."""
    try:
        question = json.loads(line)
        timed(question.get("seconds"))
        made = json.dumps(answer(question))
    except MemoryError:
        made = json.dumps(failed("the spec needs more memory than the page allows"))
    except RecursionError:
        made = json.dumps(failed("the spec is nested too deeply"))
    except Exception as error:
        made = json.dumps(failed(f"{type(error).__name__}: {error}"))
    if len(made) > LARGEST:
        made = json.dumps(failed("the answer is too large for the page; use the command line"))
    timed(0)
    return made


def main() -> None:
    limit()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer
    reply(json.dumps(WARM))  # imports what every answer needs, before the first question's time begins
    out.write("{}\n")
    out.flush()
    for line in sys.stdin:
        out.write(reply(line) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
