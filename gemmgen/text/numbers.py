"""Numbers as a person reads them, each with its unit."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """ "1 block", "1,024 blocks"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def time_text(seconds: float) -> str:
    """A time with three digits and its unit: s, ms, us or ns."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def duration(seconds: float) -> str:
    """A time in a table: as ``time_text``, and in microseconds where it is shorter."""
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-6 else time_text(seconds)


def size_text(nbytes: float) -> str:
    """Bytes with three digits and their unit, in powers of 1000."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.0f} B"


def listed(words: Sequence[str]) -> str:
    """ "float4", "transposeA and float4", "cpasync, prefetch and snake"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
