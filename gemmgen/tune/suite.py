"""Suites of shapes that a benchmark goes through."""

from __future__ import annotations

from collections.abc import Mapping

from gemmgen.diagnostics import ArgumentError
from gemmgen.tune.pool import LAYOUTS, Layout
from gemmgen.tune.shapes import Shape

F32: tuple[Shape, ...] = (
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (4092, 4092, 4092),
    (4095, 4095, 4095), (4097, 4097, 4097), (8192, 8192, 8192), (1000, 1000, 1000), (127, 129, 131),
    (1, 4096, 4096), (8, 4096, 4096), (16, 4096, 4096), (64, 4096, 4096), (128, 4096, 4096), (4096, 64, 4096),
    (256, 256, 65536), (4096, 4096, 64), (8192, 1024, 1024), (3000, 777, 2049), (2048, 11008, 4096),
)  # fmt: skip
"""float32: squares from small to large, sizes one off a round one, few rows or columns, deep and shallow sums."""

SUITES: Mapping[str, tuple[Shape, ...]] = {"f32": F32}


def read_cases(text: str, name: str) -> list[tuple[Shape, Layout]]:
    """The shapes of a file: a line each of M, N and K, and a layout ("nn" where it is left out); "#" starts a comment.

    Raises ArgumentError with the line that reads otherwise.
    """
    found: list[tuple[Shape, Layout]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        layout = next((x for x in LAYOUTS if words[3:] == [x]), "nn" if len(words) == 3 else None)
        if layout is None or not all(w.isdecimal() and int(w) > 0 for w in words[:3]) or len(words) < 3:
            raise ArgumentError(
                f"{name}, line {number}: {line.strip()[:80]!r}; a line is M N K and a layout, as '512 1024 64 nt'"
            )
        m, n, k = map(int, words[:3])
        found.append(((m, n, k), layout))
    if not found:
        raise ArgumentError(f"{name} has no shapes; a line is M N K and a layout, as '512 1024 64 nt'")
    return found
