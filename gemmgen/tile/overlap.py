"""Which kernels of a product overlap, and what that leaves for them to put in order."""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.ir.program import Part
from gemmgen.tile.effects import Kernel
from gemmgen.tile.program import TileProgram
from gemmgen.tile.sums import InMemory, SecondKernel
from gemmgen.tile.syncs import Kind, Side, Sync


@dataclass(frozen=True)
class Overlap:
    """``previous`` may still be running and has ``written`` for this kernel; ``allows`` is how it lets the next start
    while it runs itself."""

    previous: Kernel | None = None
    written: tuple[str, ...] = ()
    allows: tuple[Sync, ...] = ()


def overlap(p: TileProgram, part: Part) -> Overlap:
    """What a kernel shares with those around it. Kernels that are not launched early follow one another."""
    match part, p.sums:
        case "main", InMemory(early=True):
            return Overlap(Kernel("previous", f"{p.name}_scale"), ("C",))
        case "first", InMemory(early=True):
            return Overlap(allows=(_allow("C", p.name),))
        case "main", SecondKernel(early=True):
            return Overlap(allows=(_allow("W", f"{p.name}_reduce"),))
        case "then", SecondKernel(early=True):
            return Overlap(Kernel("previous", p.name), ("W",))
        case _:
            return Overlap()


def _allow(written: str, reader: str) -> Sync:
    hazard = f"{written}: {reader} waits for it by itself, and may start"
    return Sync(Kind.KERNEL, Side.RELEASE, hazard, (written,))
