"""The text of advice: applying it, and nothing else, gives the spec that was tried."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import gemmgen
from gemmgen.analysis.changes import Change, changes, sets
from gemmgen.analysis.model import RESOURCES
from gemmgen.diagnostics import GemmgenError
from gemmgen.spec.model import SETTINGS, Spec
from gemmgen.spec.parse import load, parse

ROOT = Path(__file__).resolve().parent.parent
FILES = {p.stem: p for folder in ("specs", "tests/fixtures/valid") for p in sorted((ROOT / folder).glob("*.gemm"))}
GROWN = """kernel grown
tile block 64x64x16
tile warp 32x32
tile thread 4x4
use coalescing, smem, transposeA, float4, warptile
persistent 8
"""
"""Its warp tile cannot stay where its thread tile grows."""


def line_of(words: str) -> str:
    """The setting that words such as "tile block 64x64x8" are about."""
    return next(row.name for row in SETTINGS if words.startswith(f"{row.name} "))


def followed(spec: Spec, words: str) -> str:
    """The text of a spec after the words are applied."""
    lines: dict[str, str] = {}
    for line in spec.to_text(comment=False).splitlines():
        found = re.match(r"(tile +\w+|\w+) +(.*)", line)
        assert found, line
        lines[" ".join(found[1].split())] = found[2]
    use = {re.match(r"\w+", t)[0]: t for t in re.split(r", (?![mn]_iter)", lines.pop("use", "")) if t}  # type: ignore[index]
    for item in words.split(", "):
        name = item.removeprefix("+ ").removeprefix("- ")
        if item.startswith("+ "):
            use[name] = name
        elif item.startswith("- "):
            assert (use if name in use else lines).pop(name)
        else:
            lines[line_of(item)] = item.removeprefix(f"{line_of(item)} ")
    if use:
        lines["use"] = ", ".join(use.values())
    return "".join(f"{name} {value}\n" for name, value in lines.items())


@cache
def spec_of(name: str) -> Spec:
    return parse(GROWN) if name == "grown" else load(FILES[name])


def tried(spec: Spec) -> list[tuple[Change, Spec]]:
    """The changes that may be advised, each with the changed spec."""
    found = []
    for by in RESOURCES:
        for change in (*changes(spec, by), *sets(spec, by)):
            try:
                found.append((change, spec.replace(**change.fields)))
            except GemmgenError:
                continue  # advice skips what is not legal
    return found


@pytest.mark.parametrize("name", [*FILES, "grown"])
def test_what_is_advised_is_all_that_is_changed(name: str) -> None:
    spec = spec_of(name)
    for change, made in tried(spec):
        assert parse(followed(spec, change.words)) == made, change.words
        assert change.setting in ("use", *(row.name for row in SETTINGS))


def test_a_larger_thread_tile_takes_the_warp_tile_with_it() -> None:
    words = {change.words for change, _ in tried(spec_of("grown"))}
    assert "tile thread 8x4, tile warp 64x32, tile block 128x64x16" in words
    assert "tile thread 8x8, tile block 128x128x8, - warptile, - tile warp" in words


def test_what_the_paragraph_says_is_legal() -> None:
    for name in ("grown", "coalesced", "regblock2d", "warptile"):
        spec = spec_of(name)
        e = gemmgen.explain(spec, 1000, 1000, 1000, compiled=False)
        assert e.advice is not None
        made = gemmgen.parse(followed(spec, e.advice.change.words))
        told = gemmgen.explain(made, 1000, 1000, 1000, compiled=False)
        assert told.bound.total_s < e.bound.total_s
