"""The three standard streams, also where the caller closed them (``2>&-``) or their reader has left."""

from __future__ import annotations

import contextlib
import io
import os
import sys

MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}
"""The streams, by their descriptors' order, and how each is opened."""


def open_closed() -> None:
    """Open the null device for each stream that is closed.

    Else a message would go to stdout for want of a stderr, and the next file that is opened, by a library perhaps,
    would get the stream's number, and what is printed to it.
    """
    for number, (name, mode) in enumerate(MODES.items()):
        if _is_closed(number):
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            if opened != number:
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the process ends


def print_anything() -> None:
    """Have stdout escape what its encoding lacks, as stderr does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def drop_stdout() -> None:
    """Send what is still to be printed to nowhere, as stdout takes nothing, and keep Python from trying as it exits."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False
