"""Winners that ship with gemmgen: one file a GPU in ``gemmgen/records``, each row a shape, its alignment and a spec."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gemmgen.tune.records import Record
from gemmgen.tune.shapes import Align, Shape

FOLDER = Path(__file__).resolve().parent.parent / "records"


@dataclass(frozen=True)
class Winner:
    """The spec to use for a shape and alignment. ``seconds`` it took where it was tuned."""

    shape: Shape
    align: Align
    spec: str
    seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        m, n, k = self.shape
        return {"m": m, "n": n, "k": k, "align": list(self.align), "seconds": self.seconds, "spec": self.spec}


@dataclass(frozen=True)
class Shipped:
    """The winners for GPUs of one architecture, and what they were measured on."""

    gpu: str
    arch: str
    rows: tuple[Winner, ...]


@lru_cache(maxsize=8)
def shipped(arch: str, folder: Path = FOLDER) -> Shipped | None:
    """What ships for an architecture such as sm_90; None where nothing does. Damaged files and rows are skipped, and
    warned of."""
    for path in sorted(folder.glob("*.json")):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["arch"] == arch:
                return Shipped(found["gpu"], found["arch"], tuple(_winners(path, found["rows"])))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            _skipped(path, error)
    return None


def _winners(path: Path, rows: list[Any]) -> Iterator[Winner]:
    for i, row in enumerate(rows):
        try:
            yield _winner(row)
        except (ValueError, KeyError, TypeError) as error:
            _skipped(f"{path}: row {i}", error)


def _winner(row: dict[str, Any]) -> Winner:
    m, n, k = row["m"], row["n"], row["k"]
    a, b, c = row["align"]
    if not all(type(v) is int and v > 0 for v in (m, n, k, a, b, c)) or not isinstance(row["spec"], str):
        raise TypeError(f"sizes and alignments are whole numbers, and a spec is text: {row!r:.200}")
    return Winner((m, n, k), (a, b, c), row["spec"], row.get("seconds"))


def _skipped(what: object, error: Exception) -> None:
    warnings.warn(f"{what}: damaged, and skipped: {type(error).__name__}: {error}", stacklevel=2)


def winners(records: Iterable[Record]) -> tuple[Winner, ...]:
    """A user's best records in the same form."""
    return tuple(Winner(r.shape, r.align, r.spec, r.seconds) for r in records)


def document(rows: Iterable[Winner], *, arch: str, **facts: Any) -> str:
    """The text of a file of winners; ``facts`` say what they were measured on ("gpu", "driver", "commit", ...)."""
    ordered = sorted(rows, key=lambda w: (w.shape, w.align))
    return json.dumps({"arch": arch, **facts, "rows": [w.to_dict() for w in ordered]}, indent=1) + "\n"
