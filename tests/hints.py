"""Reads hints as a person does who follows them to the letter: each gives the specs that it leads to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gemmgen.diagnostics import Problem
from gemmgen.spec.model import PARTS, TOGGLES, Spec

NAMES = {t.name for t in TOGGLES}
BOTH = ("use one of them", "leave one of the two out")
NUMBERS = r"[0-9]+(?:(?:, | and | or )[0-9]+)*"
TUNED = "stages|unroll|pad_a|pad_b|split_k|min_blocks|cta_swizzle|persistent"


def followed(spec: Spec, problem: Problem) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every way in which the hint can be followed, with the changes to the spec's fields that it asks for."""
    for way in re.split(r", or (?!\d)|; ", problem.hint):
        for changes in _changes(spec, problem, way):
            yield way, changes


def _changes(spec: Spec, problem: Problem, way: str) -> Iterator[dict[str, Any]]:
    if found := re.findall(r"'(tile )?(block|warp|thread) ([0-9x]+)'", way):
        add = re.match(r"add (?!a line|the line)(\w+(?: and \w+)*)", way)
        use = spec.use | set(add[1].split(" and ")) if add else spec.use
        yield from ({field: _sizes(sizes), "use": use} for _, field, sizes in found)
    elif found := re.findall(rf"'({TUNED}) ([0-9]+)'", way):
        together = [{name: int(value) for name, value in found}] if " with " in way else []
        yield from together or [{name: int(value)} for name, value in found]
        if bk := re.match(r"BK ([0-9]+) with", way):
            yield {"block": (*spec.block[:2], int(bk[1])), **{name: int(value) for name, value in found}}
    elif found := re.match(r"write BK ([0-9]+)(?: or ([0-9]+))?( and leave unroll out)?", way):
        yield from (
            {"block": (*spec.block[:2], int(bk)), **({"unroll": 0} if found[3] else {})}
            for bk in found.groups()[:2]
            if bk
        )
    elif way not in BOTH and (found := re.match(r"leave (.+) out$", way)):
        yield _without(spec, found[1].replace("'", "").split(" and "))
    elif found := re.match(r"add (\w+(?: and \w+)*)(?: to the use line)?$", way):
        yield {"use": spec.use | set(found[1].split(" and "))}
    elif found := re.match(r"use (\w+) in place of (.+)$", way):
        yield {"use": spec.use - set(found[2].split(" and ")) | {found[1]}}
    elif way in BOTH:
        named = [w for w in re.findall(r"\w+", problem.message) if w in NAMES & spec.use or w == "persistent"]
        yield from (_without(spec, [name]) for name in dict.fromkeys(named[:2]))
    elif way == "take B in row order":
        yield {"B": replace(spec.B, order="row")}
    elif pairs := re.findall(r"\(m_iter=([0-9]+), n_iter=([0-9]+)\)", way):
        yield from ({"m_iter": int(m), "n_iter": int(n)} for m, n in pairs)
    elif found := re.match(r"([0-9]+)x([0-9]+) would fit|([0-9]+)x([0-9]+)x([0-9]+) has", way):
        sizes = tuple(int(v) for v in found.groups() if v)
        yield {"block": (*sizes, *spec.block[len(sizes) :])}
    else:
        yield from _numbers(spec, problem, way)


def _numbers(spec: Spec, problem: Problem, way: str) -> Iterator[dict[str, Any]]:
    """``2 and 4 are``, ``BM 64 or 128 is right``: values of the setting that the message speaks of."""
    found = re.match(rf"(?:({'|'.join(PARTS)}|{TUNED}) )?({NUMBERS}) (?:are|is|would|has|needs|divides|fits)\b", way)
    if not found:
        return
    name = found[1] or _about(problem.message)
    for value in re.findall("[0-9]+", found[2]):
        yield _with(spec, name, int(value))


def _about(message: str) -> str:
    """The setting that a message without quotation marks speaks of."""
    if multiple := re.match(r"(block|warp) [0-9]+ (rows|columns)", message):
        return {"block": "B", "warp": "W"}[multiple[1]] + {"rows": "M", "columns": "N"}[multiple[2]]
    words = re.findall(rf"\b({TUNED}|{'|'.join(PARTS)})\b", message.partition(":")[0] + message)
    return next(w for w in words if w in message) if "unroll" not in words else "unroll"


def _with(spec: Spec, name: str, value: int) -> dict[str, Any]:
    if name not in PARTS:
        return {name: value}
    field, i = PARTS[name]
    tile = getattr(spec, field)
    return {field: (*tile[:i], value, *tile[i + 1 :])}


def _without(spec: Spec, names: list[str]) -> dict[str, Any]:
    defaults = {f: d.default for f, d in Spec.__dataclass_fields__.items()}
    gone = {o for t in TOGGLES if t.name in names for o in t.options}
    return {name: defaults[name] for name in (*gone, *(n for n in names if n not in NAMES))} | {
        "use": spec.use - set(names)
    }


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(v) for v in text.split("x"))
