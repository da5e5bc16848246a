"""How a product is launched: pure, and decided once for the simulator and the GPU.

``plan`` turns the shapes, strides and addresses of three matrices into launches: which variant of the kernel, with
which grid and arguments, after which copies. It refuses what cannot be computed in place. It touches no memory.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from gemmgen.diagnostics import ArgumentError
from gemmgen.ir.program import Program
from gemmgen.ir.variant import EXACT, GUARDED, Variant
from gemmgen.launch.batches import ONE, Batch, batch_of, in_batches, matrices_of, phase, refuse_copies
from gemmgen.launch.beside import narrowed, packed, refuse_shapes
from gemmgen.launch.beside import places as places_beside
from gemmgen.launch.grid import added, panels, partial_bytes, split
from gemmgen.launch.launches import HARDWARE, LARGEST, LaunchPlan, Limits
from gemmgen.launch.overlap import refuse_overlap
from gemmgen.launch.placement import OPERANDS, WIDEST, Place, as_padded, placed, repacked, split_into_parts

if TYPE_CHECKING:
    from gemmgen.spec.model import Spec

    Planned: TypeAlias = Spec | Program


def program_for(planned: Planned) -> Program:
    """The program of a spec, or the program itself."""
    if isinstance(planned, Program):
        return planned
    from gemmgen.lower import lower

    found = lower(planned).program
    assert found is not None
    return found


def plan(
    planned: Planned,
    shapes: Mapping[str, tuple[int, ...]],
    strides: Mapping[str, tuple[int, ...]],
    addresses: Mapping[str, int],
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    writable: bool = True,
    variant: Variant | None = None,
    limits: Limits = HARDWARE,
) -> LaunchPlan:
    """The launches that compute C = alpha * (A @ B) + beta * C, with the epilogue of the program.

    ``shapes`` of "A" (M, K), "B" (K, N), "C" (M, N) and what the epilogue reads beside them; ``strides`` in elements;
    ``addresses`` of the first elements in bytes. ``writable`` says whether C may be written. With ``variant`` the
    kernel is given, and what it cannot do is refused; else the fastest variant that fits is taken. Raises ArgumentError
    naming the operand and the numbers.
    """
    program = program_for(planned)
    batch, all_shapes, all_strides = batch_of(program, shapes, strides), shapes, strides
    shapes, strides = matrices_of(shapes, program), matrices_of(strides, program)
    m, n, k = sizes({name: shapes[name] for name in OPERANDS})
    if not writable:
        raise ArgumentError("C is read-only; it is updated in place: pass an array that can be written")
    refuse_shapes(program, shapes, m, n)
    refuse_overlap(program, all_shapes, all_strides, addresses)
    names = (*OPERANDS, *(x.name for x in program.beside))
    return plan_aligned(
        program,
        (m, n, k),
        tuple(strides[name] for name in names),
        tuple(phase(program, name, addresses[name], batch) for name in names),
        as_float32(alpha),
        as_float32(beta),
        variant,
        limits,
        batch,
    )


def plan_aligned(
    planned: Planned,
    size: tuple[int, int, int],
    strides: tuple[tuple[int, ...], ...],
    addresses: tuple[int, ...],
    alpha: float,
    beta: float,
    variant: Variant | None = None,
    limits: Limits = HARDWARE,
    batch: Batch = ONE,
) -> LaunchPlan:
    """The plan of operands known not to overlap, in the order A, B, C, then those of the epilogue, which may be left
    out where they are packed and aligned; ``addresses`` are modulo 16.

    Remembered: the same call with other buffers asks again only for the overlap.
    """
    program = program_for(planned)
    if len(strides) == len(OPERANDS):
        strides = (*strides, *(packed(x, *size[:2]) for x in program.beside))
        addresses = (*addresses, *(0 for _ in program.beside))
    if program.batched and not batch.strides:
        batch = Batch(1, tuple((x.name, 0) for x in program.operands))
    return _planned(program, size, strides, addresses, alpha, beta, variant, limits, batch)


@lru_cache(maxsize=4096)
def _planned(
    program: Program,
    size: tuple[int, int, int],
    strides: tuple[tuple[int, ...], ...],
    addresses: tuple[int, ...],
    alpha: float,
    beta: float,
    variant: Variant | None,
    limits: Limits,
    batch: Batch,
) -> LaunchPlan:
    m, n, k = size
    if m == 0 or n == 0 or batch.count == 0:
        return LaunchPlan(())
    if alpha == 0.0 or k == 0:
        # A and B are not read: an alpha of NaN with an empty sum is no NaN either.
        alpha, k = 0.0, 0
    # Kernels round K up to whole tiles of every slice, and look as many tiles ahead as there are stages.
    deepest = LARGEST // program.as_read("A").parts - program.looks_ahead
    if k > deepest:
        raise ArgumentError(f"K is {k}; the largest K of one launch is {deepest}")
    beside = places_beside(program, (m, n), strides[3:], addresses[3:])
    places = {
        name: placed(
            program.matrix(name),
            shape,
            (strides[i][0], strides[i][1]),
            addresses[i],
            padding=variant is None or bool(variant.padded),
        )
        for i, (name, shape) in enumerate((("A", (m, k)), ("B", (k, n)), ("C", (m, n))))
    }
    if program.split is not None and k:
        places |= {x: split_into_parts(program, x, (m, k) if x == "A" else (k, n)) for x in ("A", "B")}
    places["C"] = narrowed(program, places["C"], beside)
    if program.batched:
        refuse_copies(program, places, strides)
    elif variant is None:
        places = {name: repacked(program, name, place, (m, n, k)) for name, place in places.items()}
    elif variant.padded:
        places = {
            name: as_padded(program, name, place, (m, n, k)) if name in variant.padded else place
            for name, place in places.items()
        }
    chosen = _fitting(program, size=(m, n, k), places=places) if variant is None else variant
    if variant is not None:
        _refuse_variant(program, variant, (m, n, k), places)
    copies = tuple(p.copy for p in places.values() if p.copy is not None)
    all_panels = panels(program, chosen, (m, n, k), alpha, beta, places | beside, limits)
    whole = [launch for panel in all_panels for launch in in_batches(program, panel, batch)]
    copied = sum(c.bytes for c in copies)
    if program.workspace is not None:
        pairs = [split(program, panel) for panel in whole]
        partials = max(partial_bytes(program, main.arguments) for main, _ in pairs)
        steps = tuple(step for pair in pairs for step in pair)
        return LaunchPlan(steps, copies, copied + partials, partials)
    if program.alone:
        return LaunchPlan(tuple(whole), copies, copied)
    return LaunchPlan(tuple(step for panel in whole for step in added(program, panel)), copies, copied)


def sizes(shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int, int]:
    """(M, N, K) of three shapes. Raises ArgumentError where they do not fit together, or one is 2^31 or more."""
    a, b, c = (shapes[name] for name in OPERANDS)
    if a[1] != b[0]:
        raise ArgumentError(f"A is {_shape(a)} and B is {_shape(b)}: A has {a[1]} columns, and B {b[0]} rows")
    if c != (a[0], b[1]):
        raise ArgumentError(f"C is {_shape(c)}; A @ B is {_shape((a[0], b[1]))}")
    m, n, k = a[0], b[1], a[1]
    for name, value in (("M", m), ("N", n), ("K", k)):
        if value > LARGEST:
            raise ArgumentError(f"{name} is {value}; sizes of 2^31 or more are not supported")
    return m, n, k


def _shape(shape: tuple[int, ...]) -> str:
    return f"{shape[0]}x{shape[1]}"


def as_float32(value: float) -> float:
    """The value that a float parameter of the kernel receives; beyond the range of float32 that is an infinity."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return inf if value > 0 else -inf
    return rounded


# --- The variant ----------------------------------------------------------------------------------------------------


def _divides(program: Program, size: tuple[int, int, int]) -> bool:
    """Whether a size is whole tiles."""
    return all(extent % tile == 0 for extent, tile in zip(size, program.tile, strict=True))


def _fitting(program: Program, size: tuple[int, int, int], places: Mapping[str, Place]) -> Variant:
    """The fastest variant that is right. Alignment beyond what the kernel's accesses need is all the same kernel."""
    needs = program.alignment
    align = {name: WIDEST if places[name].align >= needs[name] else places[name].align for name in OPERANDS}
    whole = _divides(program, size) and all(b == WIDEST for b in align.values())
    padded = frozenset(name for name in OPERANDS if places[name].padded)
    return EXACT if whole and not padded else Variant(GUARDED.guard, tuple(align.items()), padded)


def _refuse_variant(
    program: Program, variant: Variant, size: tuple[int, int, int], places: Mapping[str, Place]
) -> None:
    """Raise ArgumentError where a kernel that is already lowered cannot compute this size or these operands."""
    for letter, extent, tile in zip("mnk", size, program.tile, strict=True):
        if letter not in variant.guard and extent % tile:
            raise ArgumentError(
                f"{letter.upper()} = {extent} is not a multiple of the tile's {tile}, which the {variant.label} "
                f"kernel of {program.name!r} needs; lower it as 'guarded'"
            )
    needs = program.alignment
    for name in OPERANDS:
        need = needs[name] if name in program.aligned else min(variant.bytes(name), needs[name])
        if places[name].align < need:
            raise ArgumentError(
                f"{name} is aligned to {places[name].align} bytes (its address, its rows' length and the distance "
                f"between them); the {variant.label} kernel of {program.name!r} needs {need}; "
                f"lower it as 'guarded_unaligned'"
            )
