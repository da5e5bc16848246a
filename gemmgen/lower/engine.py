"""Tiles brought by the TMA engine: one thread asks, an mbarrier a stage says when they are there, and with ``release``
another when all warps are done with them."""

from __future__ import annotations

from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.kernel import TensorMap
from gemmgen.ir.nodes import Array, Call, If, MapRef, Ref, Stmt
from gemmgen.ir.types import U64, WARP
from gemmgen.isa.async_copy import (
    MBARRIER_EXPECT,
    MBARRIER_FENCE,
    MBARRIER_INIT,
    MBARRIER_RELEASE,
    MBARRIER_WAIT,
    tma_load,
)
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
        self.stages = stages.expr if stages else Const(self.depth)
        self.ready = Array("tileReady", "shared", U64, (self.stages,), align=8)
        self.free = Array("tileFree", "shared", U64, (self.stages,), align=8)
        self.barriers = (self.ready, self.free) if s.p.pipeline.release else (self.ready,)
        self.maps = tuple(self._map(c.operand, c.buffer) for c in s.p.copies)

    def _map(self, operand: str, buffer: str) -> TensorMap:
        p = self.s.p
        tile = p.buffer(operand)
        assert tile is not None
        along, across = p.contiguous(operand), p.strided(operand)
        swizzle = tile.dtype.bytes * tile.layout.extents[1] if tile.layout.swizzle else 0
        return TensorMap(f"map{operand}", operand, (p.extent(along), p.extent(across)), swizzle, tile.dtype)

    def set_up(self) -> list[Stmt]:
        """Initialise the barriers before anyone waits for them."""

        def one(s: Expr) -> list[Stmt]:
            threads = self.s.constants["THREADS"].expr
            arrivals = [Const(1), (threads + (WARP - 1)) // WARP if self.s.threads % WARP else threads // WARP]
            return [Call(MBARRIER_INIT, (Ref(b, (s,)), n)) for b, n in zip(self.barriers, arrivals, strict=False)]

        each = nest([("s", self.stages, 1)], one, unroll=None)
        first = If(self.s.tid.eq(0), (*each, Call(MBARRIER_FENCE, ())))
        return [first, self.s.sync("barriers: set up above, waited for below")]

    def bring(self, k0: Expr, stage: Expr | None, at: Place) -> list[Stmt]:
        """Announce the bytes of a stage's tiles, and have them copied."""
        p = self.s.p
        barrier = Ref(self.ready, (stage or Const(0),))
        total = sum(
            p.matrix(c.operand).dtype.bytes * p.extent(p.contiguous(c.operand)) * p.extent(p.strided(c.operand))
            for c in p.copies
        )
        both = len(p.copies) > 1
        item = p.matrix("A").dtype.bytes
        text = f"{item} * (BM * BK + BK * BN)" if both else f"{item} * BM * BK"
        why = f"bytes of one tile of A{' and one of B' if both else ''}"
        nbytes = self.s.constant("TILE_BYTES", total, text, why)
        out: list[Stmt] = [Call(MBARRIER_EXPECT, (barrier, nbytes))]
        for c, m in zip(p.copies, self.maps, strict=True):
            start = {"k": self.s.first_k + k0, "m": self.s.origin("m"), "n": self.s.origin("n")}
            x, y = start[p.contiguous(c.operand)], start[p.strided(c.operand)]
            lead = () if stage is None else (stage,)
            tile = Ref(self.shared[c.buffer], (*lead, Const(0), Const(0)))
            out.append(
                Call(tma_load(self.shared[c.buffer].dtype), (tile, MapRef(m.name), x, y, barrier), origin="use tma")
            )
        return out

    def wait(self, stage: Expr | None, parity: Expr) -> list[Stmt]:
        """Until the stage's tiles are there."""
        return [Call(MBARRIER_WAIT, (Ref(self.ready, (stage or Const(0),)), parity))]

    def release(self, stage: Expr | None) -> list[Stmt]:
        """Each warp is done with the stage's tiles."""
        return [Call(MBARRIER_RELEASE, (Ref(self.free, (stage or Const(0),)),), origin="use release")]

    def wait_free(self, stage: Expr | None, parity: Expr) -> list[Stmt]:
        """Until all warps are done with the stage's tiles."""
        return [Call(MBARRIER_WAIT, (Ref(self.free, (stage or Const(0),)), parity), origin="use release")]
