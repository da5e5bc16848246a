"""Rules on products of warp groups (wgmma): which tiles, and how they must come to shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemmgen.diagnostics import Problem, quoted
from gemmgen.isa.math import NAMES, types_of
from gemmgen.isa.wgmma import ATOM, DEPTH_BYTES, GROUP_WARPS, REGISTERS
from gemmgen.spec.suggest import either, multiples_around

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec
    from gemmgen.spec.subject import Subject

NEEDS = {
    "tma": "the tensor cores read tiles as the TMA engine writes them",
    "smemSwizzle": "the tensor cores read rows swizzled over 128 bytes",
}
"""The toggles without which no warp group can multiply, and why."""
WITHOUT = ("prefetch", "ldmatrix", "directB", "transposeA")
"""Toggles about fragments in registers, of which a warp group's products have none."""


def group_problems(s: Subject) -> Iterator[Problem]:
    """Mistakes about ``math wgmma``."""
    spec = s.spec
    for toggle in WITHOUT:
        if spec.has(toggle):
            message = f"use {toggle} is about fragments in registers, and {spec.math} reads both tiles in shared memory"
            yield Problem(message, s.leaving(toggle) or f"leave {toggle} out", s.span(f"use {toggle}", "use"))
    yield from _tiles(s)
    if spec.roles is not None:
        yield from _roles(s)
    if spec.has("tmaStore"):
        yield from _store(s)


def _store(s: Subject) -> Iterator[Problem]:
    """The engine stores rows of 128 bytes of a C that lies by rows, and nothing else takes its place."""
    spec, leave = s.spec, s.leaving("tmaStore") or "leave tmaStore out"
    size = spec.matrices[2].dtype.bytes * spec.block[1]
    found: list[tuple[bool, str]] = [
        (spec.C.order != "row", "tmaStore stores rows of C, and C lies by columns"),
        (
            size % ATOM != 0,
            f"tmaStore stores {ATOM} bytes of a row at a time, and BN {spec.block[1]} makes rows of {size}",
        ),
        *((spec.has(x), f"tmaStore and {x} are two ways to store C") for x in ("stageC", "clusterReduce", "atomics")),
        (spec.split_k > 1, f"tmaStore stores C, and with split_k {spec.split_k} a second kernel does"),
        (
            spec.persistent > 0 and spec.roles is None,
            "persistent blocks with tmaStore need roles: one group brings tiles while the others store",
        ),
    ]
    yield from (Problem(message, leave, s.span("use tmaStore", "use")) for wrong, message in found if wrong)


def no_roles(s: Subject) -> Iterator[Problem]:
    """Roles without products that a group of their own could bring tiles for."""
    if s.spec.has("tmaStore"):
        message = f"tmaStore stores tiles of math wgmma, and math is {s.spec.math}"
        yield Problem(message, s.leaving("tmaStore") or "leave tmaStore out", s.span("use tmaStore", "use"))
    if s.spec.roles is not None:
        hint = "leave the roles line out, or write 'math wgmma 64x256x16' with its tiles"
        yield Problem(f"roles divide the work of math wgmma, and math is {s.spec.math}", hint, s.span("roles"))


def _roles(s: Subject) -> Iterator[Problem]:
    """One group brings tiles, and as many others as the block has 64 rows multiply."""
    spec = s.spec
    found = re.fullmatch(r"producer 1, consumers ([1-9][0-9]*)", spec.roles or "")
    groups = spec.block[0] // spec.way.shape[0]
    if found is None or int(found.group(1)) != groups:
        given = quoted(spec.roles or "")
        message = f"roles {given}: a block of {spec.block[0]} rows has {groups} groups that multiply, 64 rows each"
        yield Problem(message, f"write 'roles producer 1, consumers {groups}'", s.span("roles"))
    elif groups > max(REGISTERS):
        message = f"{groups} groups that multiply leave each thread too few registers for its sums"
        yield Problem(
            message, f"take at most {max(REGISTERS)}: BM {64 * max(REGISTERS)}", s.span("roles", "tile block")
        )
    if not spec.has("release"):
        message = "roles needs release: warps that multiply tell those that bring tiles when a stage may be overwritten"
        yield Problem(message, "add release to the use line", s.span("roles"))
    for toggle in ("stageC",):
        if spec.has(toggle):
            message = f"use {toggle} has all threads of a block meet, and with roles they run different programs"
            yield Problem(message, s.leaving(toggle) or f"leave {toggle} out", s.span(f"use {toggle}", "use"))


def warp_of(spec: Spec) -> tuple[int, int]:
    """The tile of one warp of a group: its share of the rows of one instruction, and all of its columns."""
    m, n, _ = spec.way.shape
    return m // GROUP_WARPS, n


def _tiles(s: Subject) -> Iterator[Problem]:
    """One instruction computes 64 rows of the block's columns; each of the four warps has 16 rows."""
    spec = s.spec
    m, n, k = spec.way.shape
    (bm, bn, bk), (rows, _) = spec.block, warp_of(spec)
    if s.good("BM") and bm % m:
        near = s.beside("BM", *multiples_around(bm, m)) or f"a multiple of {m}"
        yield Problem(
            f"BM {bm} is not a multiple of {m}, the rows of {spec.math}",
            f"write {near.replace(' and ', ' or ')}",
            s.span("BM", "tile block"),
        )
    if s.good("BN") and bn != n:
        message = f"BN is {bn}, and {spec.math} computes {n} columns"
        parts = "" if spec.way.split is None else f" as {spec.way.split.name}"
        other = f"wgmma {m}x{bn}x{k}{parts}"
        whole = spec.B.order == "col" or DEPTH_BYTES // k * bn % ATOM == 0
        hint = either(f"write BN {n}", f"'math {other}'" if other in NAMES and whole else "")
        yield Problem(message, hint, s.span("BN", "tile block"))
    if s.good("WM", "WN") and spec.warp is not None and spec.warp != (rows, n):
        message = f"tile warp {spec.warp[0]}x{spec.warp[1]}: each warp of {spec.math} has {rows} rows of {n} columns"
        yield Problem(message, f"write 'tile warp {rows}x{n}'", s.span("tile warp"))
    item = DEPTH_BYTES // k
    if s.good("BK") and not s.no_bk and item * bk != ATOM:
        message = f"BK {bk} makes {item * bk} bytes along k, and {spec.math} reads tiles of {ATOM}"
        yield Problem(message, f"write BK {ATOM // item}", s.span("BK", "tile block"))
    if s.good("BM", "BN") and spec.A.dtype in types_of(spec.math):
        yield from _majors(s)


def _majors(s: Subject) -> Iterator[Problem]:
    """Only 16-bit elements can lie along M or N; then rows are whole 128 bytes."""
    spec = s.spec
    item = spec.multiplied[0].dtype.bytes
    if spec.way.split is not None:  # what is read is a copy, along k
        return
    bm, bn, _ = spec.block
    for name, order, extent, size in (("A", "col", bm, "BM"), ("B", "row", bn, "BN")):
        if getattr(spec, name).order != order:
            continue
        if item != 2:
            other = "row" if order == "col" else "col"
            lies = "columns" if name == "A" else "rows"
            message = f"{spec.math} reads {spec.A.dtype} along k alone, and {name} lies by {lies}"
            yield Problem(message, f"write '{name} {spec.A.dtype} {other}'", s.span(f"operands {name}", "operands"))
        elif item * extent % ATOM and (name == "A" or extent == spec.way.shape[1]):
            unit = ATOM // item
            message = f"{size} {extent} makes rows of {item * extent} bytes, and {spec.math} reads {ATOM} at a time"
            if name == "A":
                near = s.beside(size, *multiples_around(extent, unit)) or f"a multiple of {unit}"
                hint = f"write {near.replace(' and ', ' or ')}"
            else:  # the columns are those of the instruction: both change, and the warp's tile with them
                hint = f"write 'B {spec.B.dtype} col', or take a multiple of {unit} for the columns of math, BN and WN"
            yield Problem(message, hint, s.span(size, "tile block"))
