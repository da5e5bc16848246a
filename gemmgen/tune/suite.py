"""Suites of shapes that a benchmark goes through."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping

from gemmgen.diagnostics import ArgumentError, escaped
from gemmgen.launch.launches import LARGEST
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


LINE = re.compile(r"([0-9]+)(?:(?:x|\s+)([0-9]+)(?:x|\s+)([0-9]+))?(?:\s+([nt]{2}))?")
LIKE = "a line is a size and a layout, like 4096x4096x512 nt or 4096 4096 512 nt, and nn may be left out"


def read_cases(text: str, name: str) -> list[tuple[Shape, Layout]]:
    """The shapes of a file, one per line: ``MxNxK`` or ``M N K``, or one number for all three, then a layout ("nn"
    where it is left out); "#" starts a comment.

    Raises ArgumentError with the line that reads otherwise.
    """
    found: list[tuple[Shape, Layout]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        read = LINE.fullmatch(words)
        if read is None:
            raise ArgumentError(f"{escaped(name)}:{number}: {words[:80]!r} is not a size; {LIKE}")
        m, n, k = (int(read[i] or read[1]) for i in (1, 2, 3))
        if not 0 < min(m, n, k) <= max(m, n, k) <= LARGEST:
            raise ArgumentError(f"{escaped(name)}:{number}: {words[:80]!r}: a size is from 1 to {LARGEST}")
        found.append(((m, n, k), next(x for x in LAYOUTS if x == (read[4] or "nn"))))
    if not found:
        raise ArgumentError(f"{escaped(name)} has no size; write one per line; {LIKE}")
    return found


SMALL = 0.15
"""Part of the shapes that are small all round."""


def drawn(count: int, seed: int = 1001) -> list[tuple[Shape, Layout]]:
    """Sizes as people have them, from 16 to 12000, a side small in a third; every layout as often."""
    r = random.Random(seed)
    found: list[tuple[Shape, Layout]] = []
    while len(found) < count:
        small = r.random() < SMALL
        low, high = (8, 700) if small else (96, 12000)
        sizes = []
        for _ in range(3):
            x = math.exp(r.uniform(math.log(low), math.log(high)))
            unit = r.choice((1, 4, 8, 64, 128, 128))
            sizes.append(max(unit, round(x / unit) * unit))
        kind = r.random()
        if kind < 1 / 3:
            sizes[r.choice((0, 0, 1, 1, 2))] = r.choice((1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64))
        elif kind > 0.92:
            sizes[2] = r.choice((32768, 65536, 100000, 262144))
            sizes[0], sizes[1] = min(sizes[0], 512), min(sizes[1], 512)
        m, n, k = sizes
        if not 2e4 <= 2 * m * n * k <= 2.5e11 or max(m * n, m * k, n * k) > 2e8:
            continue
        found.append(((m, n, k), LAYOUTS[len(found) % 4]))
    return found
