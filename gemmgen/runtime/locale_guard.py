"""Keeps the process's locale over calls into libraries that change it.

Some versions of NVRTC set the locale to "C" and do not restore it, which changes how Python reads
and writes files. A locale belongs to the whole process, so threads that compile at once share one
guard: the first in notes the locale, the last out restores it.
"""

from __future__ import annotations

import locale
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Guard:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = ""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._before = locale.setlocale(locale.LC_ALL)
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0 and locale.setlocale(locale.LC_ALL) != self._before:
                    locale.setlocale(locale.LC_ALL, self._before)


keep_locale = _Guard().__call__
