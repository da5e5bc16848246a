"""Tiles brought by the TMA engine: one thread asks, an mbarrier a stage says when they are there."""

from __future__ import annotations

from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.nodes import Array, Call, If, MapRef, Ref, Stmt, TensorMap
from gemmgen.isa.async_copy import MBARRIER_EXPECT, MBARRIER_FENCE, MBARRIER_INIT, MBARRIER_WAIT, TMA_LOAD
from gemmgen.lower.nest import nest
from gemmgen.lower.place import Place
from gemmgen.lower.scope import Scope


class Engine:
    """The barriers, maps and statements of a kernel whose tiles come by TMA."""

    def __init__(self, s: Scope, shared: dict[str, Array]) -> None:
        self.s = s
        self.shared = shared
        self.depth = s.p.pipeline.depth
        stages = s.constants.get("STAGES")
        self.full = Array("barriers", "shared", "u64", (stages.expr if stages else Const(self.depth),), align=8)
        self.maps = tuple(self._map(c.operand, c.buffer) for c in s.p.copies)

    def _map(self, operand: str, buffer: str) -> TensorMap:
        p = self.s.p
        tile = p.buffer(operand)
        assert tile is not None
        along, across = p.contiguous(operand), p.strided(operand)
        swizzle = 4 * tile.layout.extents[1] if tile.layout.swizzle else 0
        return TensorMap(f"map{operand}", operand, (p.extent(along), p.extent(across)), swizzle)

    def set_up(self) -> list[Stmt]:
        """Initialise the barriers before anyone waits for them."""
        each = nest([("s", self._stages(), 1)], lambda s: [Call(MBARRIER_INIT, (Ref(self.full, (s,)),))], unroll=None)
        first = If(self.s.tid.eq(0), (*each, Call(MBARRIER_FENCE, ())))
        return [first, self.s.sync("barriers: set up above, waited for below")]

    def _stages(self) -> Expr:
        assert self.full.shape is not None
        return self.full.shape[0]

    def bring(self, k0: Expr, stage: Expr | None, at: Place) -> list[Stmt]:
        """Announce the bytes of a stage's tiles, and have them copied."""
        p = self.s.p
        barrier = Ref(self.full, (stage or Const(0),))
        total = sum(4 * p.extent(p.contiguous(c.operand)) * p.extent(p.strided(c.operand)) for c in p.copies)
        both = len(p.copies) > 1
        text = "4 * (BM * BK + BK * BN)" if both else "4 * BM * BK"
        why = f"bytes of one tile of A{' and one of B' if both else ''}"
        nbytes = self.s.constant("TILE_BYTES", total, text, why)
        out: list[Stmt] = [Call(MBARRIER_EXPECT, (barrier, nbytes))]
        for c, m in zip(p.copies, self.maps, strict=True):
            start = {"k": self.s.first_k + k0, "m": self.s.origin("m"), "n": self.s.origin("n")}
            x, y = start[p.contiguous(c.operand)], start[p.strided(c.operand)]
            lead = () if stage is None else (stage,)
            tile = Ref(self.shared[c.buffer], (*lead, Const(0), Const(0)))
            out.append(Call(TMA_LOAD, (tile, MapRef(m.name), x, y, barrier), origin="use tma"))
        return out

    def wait(self, stage: Expr | None, parity: Expr) -> list[Stmt]:
        """Until the stage's tiles are there."""
        return [Call(MBARRIER_WAIT, (Ref(self.full, (stage or Const(0),)), parity))]
