"""What a shell completes: names of specs, and settings with their values."""

from __future__ import annotations

import os
from collections.abc import Iterator


def complete_spec(incomplete: str) -> list[str]:
    """Rungs of the ladder, and spec files and folders, that begin with what is typed."""
    from gemmgen.spec.ladder import ladder_names

    rungs = [name for name in ladder_names() if name.startswith(incomplete)]
    return [*rungs, *_files(incomplete)]


def complete_rung(incomplete: str) -> list[str]:
    from gemmgen.spec.ladder import ladder_names

    return [name for name in ladder_names() if name.startswith(incomplete)]


def complete_name(incomplete: str) -> list[str]:
    from gemmgen.spec.assign import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


def complete_gpu(incomplete: str) -> list[str]:
    from gemmgen.target import GPUS

    return [name for name in GPUS if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """``NAME=`` while a name is typed, then on and off for a toggle, or the choices of a setting."""
    from gemmgen.spec.assign import NAMES

    name, equals, value = incomplete.partition("=")
    if not equals:
        return [f"{known}=" for known in NAMES if known.startswith(name)]
    return [f"{name}={known}" for known in _values(name) if known.startswith(value)]


def _values(name: str) -> tuple[str, ...]:
    """The values of a setting that can be listed."""
    from gemmgen.spec.assign import OPERANDS, SWITCHES
    from gemmgen.spec.model import DTYPES, ORDERS, SETTINGS, SUM_TYPES

    if name in SWITCHES:
        return ("on", "off")
    if name in OPERANDS:
        return (*DTYPES, *ORDERS)
    if name == "accumulate":
        return SUM_TYPES
    return tuple(str(choice) for row in SETTINGS if row.fields[0] == name for choice in row.choices)


def _files(incomplete: str) -> Iterator[str]:
    """Spec files, and folders with a slash, in the folder that is typed so far."""
    folder, start = os.path.split(incomplete)
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if not name.startswith(start) or (name.startswith(".") and not start):
            continue
        if os.path.isdir(path):
            yield f"{path}/"
        elif name.endswith(".gemm"):
            yield path
