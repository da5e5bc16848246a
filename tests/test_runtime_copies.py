"""The launches that copy inputs into dense lines: what they are told, and the text of their kernel on the host."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_cuda.harness import HostModule, build, missing

from gemmgen.ir.split import SPLITS, Split
from gemmgen.runtime import copies
from gemmgen.runtime.copies import A_BLOCK, THREADS, Copies, Dense, dense, division, text
from gemmgen.runtime.frame import A, B, Frame
from gemmgen.runtime.nvrtc import compile_cubin

ONE, BOTH = (A,), (A, B)


@cache
def built() -> HostModule:
    if missing() is not None:
        pytest.skip(str(missing()))
    parts = [(name, text(far=False, split=split)) for name, split in SPLITS.items()]
    return build([("near", text(far=False)), ("far", text(far=True)), *parts])


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """Copies run on the host; (whether far, blocks) of every launch."""
    seen: list[tuple[bool, int]] = []

    def copier(here: Any, far: bool, item: int, split: Split | None = None) -> Any:
        name = "far" if far else "near"
        name = name if split is None else split.name
        _, kinds = built().entries[name]
        types = [ctypes.c_void_p if k.endswith("*") else KINDS[k] for k in kinds]

        def start(frame: Frame) -> None:
            at = ctypes.cast(frame.pointers, ctypes.POINTER(ctypes.c_void_p))
            values = [t.from_address(at[i] or 0).value for i, t in enumerate(types)]
            seen.append((far, frame.grid[0]))
            built().run(name, frame.grid, THREADS, values)

        return SimpleNamespace(start=start)

    monkeypatch.setattr(copies, "copier", copier)
    return seen


KINDS: dict[str, Any] = {"unsigned": ctypes.c_uint, "int": ctypes.c_int, "long long": ctypes.c_longlong}
Matrix = np.ndarray[Any, np.dtype[np.float32]]
VIEWS: dict[str, Callable[[Matrix], Matrix]] = {
    "rows": lambda x: x,
    "transposed": lambda x: np.asfortranarray(x),
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "every_other": lambda x: np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
}


def strides_of(x: Matrix) -> tuple[int, ...]:
    return tuple(s // 4 for s in x.strides)


def copied(of: dict[int, tuple[Matrix, str, int]]) -> dict[int, Matrix]:
    """What the copies leave of these (matrix, order, leading), with the orders undone."""
    made = Copies(None, {i: dense(x.shape, strides_of(x), *how) for i, (x, *how) in of.items()})  # type: ignore[arg-type]
    room = np.full(made.bytes // 4 + 64, np.nan, np.float32)
    address = {i: x.ctypes.data for i, (x, *_) in of.items()}
    targets = made(address.get(A, 0), address.get(B, 0), room.ctypes.data, 0)
    assert np.isnan(room[made.bytes // 4 :]).all()
    found = {}
    for i, (x, order, leading) in of.items():
        lines = x.shape[0] if order == "row" else x.shape[1]
        first = (targets[i] - room.ctypes.data) // 4
        assert first % 64 == 0
        end = first + lines * leading
        whole = room[first:end].reshape(lines, leading)
        assert np.isnan(room[end : end + -end % 64]).all()
        found[i] = whole if order == "row" else whole.T
    return found


def right(found: Matrix, x: Matrix) -> bool:
    rows, columns = x.shape
    beyond = found[rows:].any() or found[:, columns:].any()
    return bool((found[:rows, :columns] == x).all() and not beyond and not np.isnan(found).any())


@pytest.mark.parametrize("which", [ONE, (B,), BOTH], ids=["A", "B", "both"])
@pytest.mark.parametrize("how", VIEWS)
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 9), (7, 1), (3, 5), (37, 61), (64, 64), (5, 2049)], ids=lambda s: "x".join(map(str, s))
)
def test_every_element_lands_and_zeros_follow(
    on_host: list[tuple[bool, int]], which: tuple[int, ...], how: str, order: str, shape: tuple[int, int]
) -> None:
    generator = np.random.default_rng(7)
    of = {}
    for i in which:
        rows, columns = shape if i == A else (shape[0] + 3, shape[1] + 2)
        x = VIEWS[how](generator.standard_normal((rows, columns)).astype(np.float32))
        extent = columns if order == "row" else rows
        for leading in (extent, -(-extent // 4) * 4):
            of[i] = x, order, leading
            found = copied(of)
            assert all(right(found[j], of[j][0]) for j in of)
    assert not any(far for far, _ in on_host)


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("how", VIEWS)
@pytest.mark.parametrize(("shape", "leading"), [((1, 1), 64), ((37, 61), 64), ((70, 129), 192), ((5, 2049), 2112)])
def test_elements_are_split_into_parts(
    on_host: list[tuple[bool, int]], name: str, order: str, how: str, shape: tuple[int, int], leading: int
) -> None:
    """The pass on the host is bit by bit what the split means, whatever numbers there are."""
    split = SPLITS[name]
    bits = np.random.default_rng(11).integers(0, 1 << 32, shape, dtype=np.uint32)
    bits.flat[:: max(1, bits.size // 7)] = 0x7F7FFFFF  # the largest number, which rounding would make an infinity
    x = VIEWS[how](bits.view(np.float32))
    lines = x if order == "row" else x.T
    leading = max(leading, -(-lines.shape[1] // 64) * 64)
    wanted = dense(x.shape, strides_of(x), order, split.parts * leading, 4, split)
    made = Copies(None, {A: wanted})  # type: ignore[arg-type]
    kind = np.dtype(f"u{split.part.bytes}")
    room = np.full(made.bytes // kind.itemsize, 7, kind)
    made(x.ctypes.data, 0, room.ctypes.data, 0)
    found = room[: lines.shape[0] * split.parts * leading].reshape(lines.shape[0], split.parts, leading)
    parts = split.of(lines)
    with np.errstate(invalid="ignore", over="ignore"):
        whole = sum(p.astype(np.float64) for p in parts)
    fine = np.isfinite(lines)
    assert (whole[~fine] == lines[~fine])[~np.isnan(lines[~fine])].all() and np.isnan(whole[np.isnan(lines)]).all()
    near = (
        np.abs(whole[fine] - lines[fine]) <= 2.0 ** -(23 if split.parts == 3 else 22) * np.abs(lines[fine]) + 2.0**-133
    )
    assert near.all()
    for number, part in enumerate(parts):
        got = found[:, number, : lines.shape[1]]
        same = got == np.ascontiguousarray(part).view(kind)
        assert (same | np.isnan(lines)).all()
        assert not found[:, number, lines.shape[1] :].any()


def test_two_copies_are_one_launch_without_wasted_blocks(on_host: list[tuple[bool, int]]) -> None:
    a, b = np.ones((30, 2049), np.float32), np.ones((204, 77), np.float32)
    copied({A: (a, "row", 2052), B: (b, "row", 80)})
    assert on_host == [(False, -(-30 * 2052 // A_BLOCK) + -(-204 * 80 // A_BLOCK))]


def test_what_one_launch_cannot_number_is_copied_in_parts(
    on_host: list[tuple[bool, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "MOST", 100)
    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal(s).astype(np.float32) for s in ((11, 29), (3, 301)))
    found = copied({A: (a, "row", 32), B: (np.asfortranarray(b), "row", 304)})
    assert right(found[A], a) and right(found[B], b)
    assert len(on_host) == 4  # of 3, 3, 3 and 2 rows of A, and B's 3 rows


def test_offsets_of_more_than_32_bits(on_host: list[tuple[bool, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lines so far apart nothing can be allocated here: the wide kernel must do as the other one does."""
    assert dense((3, 5), (1 << 30, 1), "row", 8).far and not dense((2, 5), (1 << 30, 1), "row", 8).far
    assert dense((2, 5), (1, -(1 << 29)), "col", 4).far
    monkeypatch.setattr(Dense, "far", True)
    x = np.random.default_rng(3).standard_normal((13, 21)).astype(np.float32)[::-1]
    assert right(copied({A: (x, "row", 24)})[A], x)
    assert on_host == [(True, 1)]


def test_a_division_by_multiplication_is_exact() -> None:
    some = random.Random(5)
    divisors = [2, 3, 4, 5, 7, 780, 2052, 2053, (1 << 30) - 1, 1 << 30, (1 << 31) - 1, 1 << 31]
    for divisor in divisors + [some.randrange(2, 1 << 31) for _ in range(200)]:
        magic, shift = division(divisor)
        assert 0 < magic < 1 << 32 and 0 <= shift < 32
        most = (1 << 31) - 1
        edges = [most, *(q * divisor + d for q in (0, 1, 2, most // divisor) for d in (-1, 0, 1))]
        for e in edges + [some.randrange(1 << 31) for _ in range(50)]:
            if 0 <= e <= most:
                assert (e * magic >> 32) >> shift == e // divisor, (e, divisor)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("split", [None, *SPLITS.values()], ids=lambda x: getattr(x, "name", "whole"))
def test_the_text_compiles_without_spills_and_fills_a_multiprocessor(arch: str, far: bool, split: Split | None) -> None:
    found = compile_cubin(text(far=far, split=split), arch, name=copies.NAME).resources
    assert found.spill_bytes == 0 and (far or found.registers <= (32 if split is None else 40))
