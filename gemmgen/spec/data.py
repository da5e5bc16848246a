"""Files that ship with gemmgen: the grammar and the ladder's specs."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent


def data_folder(name: str) -> Path:
    """The folder ``grammar`` or ``specs``: inside the installed package, else beside it in a checkout."""
    inside = _PACKAGE / "_data" / name
    return inside if inside.is_dir() else _PACKAGE.parent / name
