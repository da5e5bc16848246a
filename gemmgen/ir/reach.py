"""How widely a kernel reaches into the matrices in global memory."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.memory import Ref
from gemmgen.ir.nodes import Call, Load, MapRef, Stmt, Store, walk

BOX = 16
"""Bytes to which the rows of a matrix that the TMA engine reads are aligned."""


def global_bytes(ir: KernelIR) -> dict[str, int]:
    """The widest access to each matrix that a kernel touches, in bytes; hardware operations included."""
    maps = {m.name: m.operand for m in ir.tensor_maps}
    widest: dict[str, int] = {}
    for s in walk(ir.body):
        for name, size in _moved(s, maps):
            widest[name] = max(widest.get(name, 0), size)
    return widest


def _moved(s: Stmt, maps: dict[str, str]) -> Iterator[tuple[str, int]]:
    match s:
        case Load(src=ref, width=width) | Store(dst=ref, width=width) if ref.array.space == "global":
            yield ref.array.name, ref.array.dtype.bytes * width
        case Call(row=row, args=args):
            for move in row.moves:
                where = args[move.argument]
                if isinstance(where, MapRef):
                    yield maps[where.name], BOX
                elif isinstance(where, Ref) and where.array.space == "global":
                    yield where.array.name, where.array.dtype.bytes * move.width
        case _:
            pass
