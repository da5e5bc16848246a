"""Whether the matrices of a product fit in this machine's memory, asked before they are made."""

from __future__ import annotations

import os
import sys

from gemmgen.cli.exits import UsageError
from gemmgen.cli.options import Size
from gemmgen.ir.types import F32

ADDRESSABLE = 1 << 47  # bytes, more than any machine that could be asked


def physical() -> int:
    """Bytes of memory that this machine has, or the most that can be addressed where it does not say."""
    if sys.platform == "win32":
        return ADDRESSABLE
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return ADDRESSABLE


def refuse_too_large(size: Size) -> None:
    """Raise UsageError where A, B and C of a size take more memory than there is."""
    m, n, k = size
    need, have = F32.bytes * (m * k + k * n + m * n), physical()
    if need > have:
        raise UsageError(f"A, B and C of {size} take {need / 1e9:,.0f} GB, and this machine has {have / 1e9:,.0f} GB")
