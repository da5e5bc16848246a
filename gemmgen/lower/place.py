"""Placement: which part of C a block, a warp and a thread compute."""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.ir.expr import Const, Expr, Var, smaller, value_of
from gemmgen.ir.nodes import Let, LetPointer, Pointer, Stmt
from gemmgen.ir.types import DIMS, WARP
from gemmgen.isa.mma import EIGHT, QUAD
from gemmgen.isa.wgmma import GROUP_THREADS, GROUP_WARPS, ROWS
from gemmgen.lower.order import order_of_blocks, order_of_tiles, tiles_of_c
from gemmgen.lower.scope import BIGGEST, BLOCK_Z, LDC, LEADING, SIZES, K, M, N, Scope, let, stride_of
from gemmgen.tile.program import Level, TileProgram


@dataclass(frozen=True)
class Place:
    """Where a thread works: its first row and column in the block tile, and how its pieces are spaced.

    Row ``i`` of piece ``(p, q)`` is ``row + p * sub_m + i``; ``rows`` and ``cols`` are all of a thread's rows and
    columns (pieces x TM, pieces x TN). ``low`` are the bits of ``row`` below those that a piece's or a warp's number
    sets, where they are apart. ``lane`` is which of the lanes this is that share a sum over K, and ``first_k`` its
    first step of those that they take at once; both are 0 where none do. Where warps multiply together, ``lane`` is
    that of the warp, and ``warp_row`` and ``warp_col`` the first of its warp's tile.
    """

    row: Expr
    col: Expr
    tm: Expr
    tn: Expr
    m_iter: Expr
    n_iter: Expr
    sub_m: Expr
    sub_n: Expr
    block: dict[str, Pointer]
    low: Expr | None = None
    lane: Expr = Const(0)  # noqa: RUF009
    first_k: Expr = Const(0)  # noqa: RUF009
    warp_row: Expr = Const(0)  # noqa: RUF009
    warp_col: Expr = Const(0)  # noqa: RUF009


WARPS = "WARP * (BM / WM) * (BN / WN)"
"""The threads of a block by its warps' tiles."""


def constants(s: Scope) -> None:
    """The tile sizes, in the order a reader wants them."""
    p, (bm, bn, bk) = s.p, s.p.block
    s.constant("BM", bm, str(bm), "rows of C that a block computes")
    s.constant("BN", bn, str(bn), "columns of C that a block computes")
    if p.copies:
        s.constant("BK", bk, str(bk), "step along K: the depth of the tiles in shared memory")
    piece, lane, thread = (p.product.level(x) for x in ("piece", "lane", "thread"))
    if _has_warps(p) and not p.product.math.by_group:
        wm, wn = piece.m * lane.m * thread.m, piece.n * lane.n * thread.n
        s.constant("WM", wm, str(wm), "rows of the block's tile that a warp computes")
        s.constant("WN", wn, str(wn), "columns of the block's tile that a warp computes")
    s.constant("WARP", WARP, str(WARP), "lanes per warp")
    if p.product.math.by_warp:
        _tiles_of_mma(s)
        return
    if p.product.math.by_group:
        s.constant(
            "N_TILES", bn // EIGHT, f"BN / {EIGHT}", "pieces of two columns of a thread's sums, in each of two rows"
        )
        groups = "128 * (BM / 64)"
        if p.producer is None:
            s.constant("THREADS", p.threads, groups, "threads in a block: a warp group of four warps for 64 rows")
        else:
            s.constant(
                "CONSUMERS", p.consumers, groups, "threads that multiply: a warp group of four warps for 64 rows"
            )
            s.constant("THREADS", p.threads, "CONSUMERS + 128", "threads in a block: one more group brings tiles")
        return
    if thread.m > 1 or thread.n > 1 or _has_warps(p):
        s.constant("TM", thread.m, str(thread.m), "rows of one piece of a thread")
        s.constant("TN", thread.n, str(thread.n), "columns of one piece of a thread")
    if _has_warps(p):
        s.constant("M_ITER", piece.m, str(piece.m), "pieces of a thread along M")
        s.constant("N_ITER", piece.n, str(piece.n), "pieces of a thread along N")
        s.constant("SUB_M", lane.m * thread.m, "WM / M_ITER", "rows from one piece to the next")
        s.constant("SUB_N", lane.n * thread.n, "WN / N_ITER", "columns from one piece to the next")
        s.constant("THREADS", p.threads, WARPS, "threads in a block")
    elif p.product.lanes_k > 1:
        _constants_of_lanes(s)
    elif thread.m > 1 or thread.n > 1:
        s.constant("THREADS", p.threads, "(BM / TM) * (BN / TN)", "threads in a block, one for each TM x TN piece")
    else:
        s.constant("THREADS", p.threads, "BM * BN", "threads in a block, one for each element of C")


def _constants_of_lanes(s: Scope) -> None:
    product, thread = s.p.product, s.p.product.level("thread")
    s.constant("LANES_K", product.lanes_k, str(product.lanes_k), "lanes that share the sum over K of their elements")
    s.constant("VECTOR", product.run, str(product.run), "neighbours along K that a lane takes at once")
    s.constant("STEP_K", product.lanes_k * product.run, "LANES_K * VECTOR", "steps along K that they take together")
    groups = "(BM / TM) * (BN / TN)" if thread.m > 1 or thread.n > 1 else "BM * BN"
    s.constant("THREADS", s.p.threads, f"{groups} * LANES_K", "threads in a block")


def _tiles_of_mma(s: Scope) -> None:
    """What one instruction multiplies, and how many of its tiles a warp's are."""
    p, (m, n, k) = s.p, s.p.product.math.shape
    piece = p.product.level("piece")
    s.constant("MMA_M", m, str(m), f"rows of C that one {p.product.math.name.split()[0]} computes")
    s.constant("MMA_N", n, str(n), "its columns of C")
    s.constant("MMA_K", k, str(k), "and its steps along K")
    s.constant("M_TILES", piece.m * EIGHT // m, "WM / MMA_M", "tiles of that size in a warp's, along M")
    s.constant("N_TILES", piece.n * EIGHT // n, "WN / MMA_N", "and along N")
    s.constant("THREADS", p.threads, WARPS, "threads in a block")


def _has_warps(p: TileProgram) -> bool:
    return any(x.name == "warp" for x in p.product.levels)


@dataclass(frozen=True)
class Placement:
    """The statements that find a place: those of the block, and where it computes several tiles of C those of each."""

    block: tuple[Stmt, ...]
    tile: tuple[Stmt, ...] = ()


def place(s: Scope) -> tuple[Placement, Place]:
    """Statements that find a thread's place, and the place."""
    if not s.p.persistent:
        order = order_of_blocks(s)
        own, at = _thread(s)
        return Placement((*order, *own, *_edges(s), *_slice_of_k(s), *_pointers(s, at))), at
    number, order = tiles_of_c(s), order_of_tiles(s)
    own, at = _thread(s)
    block = (*own, *_slice_of_k(s), *number)
    return Placement(block, (*order, *_edges(s), *_pointers(s, at))), at


def _pointers(s: Scope, at: Place) -> list[Stmt]:
    """Where the block's parts of the matrices begin, known to ``at`` from now on."""
    at.block.update((x, _block_pointer(s, x)) for x in ("A", "B", "C"))
    last = "the tile itself" if s.p.persistent else "its tile of C"
    if s.p.second_kernel:
        last = "its sums of this tile of C, in a matrix for each part of K"
    what = {"A": f"this {_whose(s)}'s rows of A", "B": "its columns of B", "C": last}
    return [LetPointer(at.block[x], what[x]) for x in ("A", "B", "C")]


def _whose(s: Scope) -> str:
    """Whose a part of a matrix is: a block's, or a tile's where a block has several."""
    return "tile" if s.p.persistent else "block"


def _thread(s: Scope) -> tuple[list[Stmt], Place]:
    """A thread's place in the block's tile."""
    if s.p.product.math.by_warp:
        return _lane(s)
    if s.p.product.math.by_group:
        return _in_group(s)
    out: list[Stmt] = []
    named = s.constants
    one = Const(1)
    tm = named["TM"].expr if "TM" in named else one
    tn = named["TN"].expr if "TN" in named else one
    lane_level = s.p.product.level("lane")
    if _has_warps(s.p):
        lanes = named["WARP"].expr
        warp = let(out, "warp", s.tid // lanes)
        lane = let(out, "lane", s.tid % lanes)
        wm, wn = named["WM"].expr, named["WN"].expr
        sub_m, sub_n = named["SUB_M"].expr, named["SUB_N"].expr
        warp_row = let(out, "warpRow", warp // (named["BN"].expr // wn))
        warp_col = let(out, "warpCol", warp % (named["BN"].expr // wn))
        y, x = _split(out, lane, lane_level, sub_m // tm, sub_n // tn)
        low = y * tm if _apart(value_of(sub_m) or 1, value_of(wm) or 1) else None
        row = let(out, "row", warp_row * wm + y * tm, "first row of this thread in the block's tile")
        col = let(out, "col", warp_col * wn + x * tn, "first column of this thread in the block's tile")
        m_iter, n_iter = named["M_ITER"].expr, named["N_ITER"].expr
    else:
        number: Expr = s.tid
        shared: tuple[Expr, Expr] = (Const(0), Const(0))
        if s.p.product.lanes_k > 1:
            number, shared = _lanes_of_k(s, out)
        y, x = _split(out, number, lane_level, named["BM"].expr // tm, named["BN"].expr // tn)
        row = let(out, "row", y * tm, "first row of this thread in the block's tile")
        col = let(out, "col", x * tn, "first column of this thread in the block's tile")
        return out, Place(row, col, tm, tn, one, one, tm, tn, {}, None, *shared)
    return out, Place(row, col, tm, tn, m_iter, n_iter, sub_m, sub_n, {}, low)


def _lanes_of_k(s: Scope, out: list[Stmt]) -> tuple[Expr, tuple[Expr, Expr]]:
    """The number of this thread's group of lanes, and which lane of it this is, with its first step along K."""
    lanes, vector = s.constants["LANES_K"].expr, s.constants["VECTOR"].expr
    lane = let(out, "laneK", s.tid % lanes, "which of the lanes that share a sum over K")
    first = let(out, "firstStep", lane * vector, "its first step of those that the lanes take together")
    return let(out, "group", s.tid // lanes), (lane, first)


def _lane(s: Scope) -> tuple[list[Stmt], Place]:
    """A lane's place in the block's tile, where a warp multiplies together: two neighbours of a row, and two of every
    eighth row and column from there on (see the instruction's sums)."""
    out: list[Stmt] = []
    c = {name: s.constants[name].expr for name in ("BN", "WM", "WN", "MMA_M", "MMA_N", "M_TILES", "N_TILES")}
    warp = let(out, "warp", s.tid // s.constants["WARP"].expr)
    lane = let(out, "lane", s.tid % s.constants["WARP"].expr)
    across = c["BN"] // c["WN"]
    warp_row = let(out, "warpRow", warp // across * c["WM"], "first row of this warp's tile in the block's")
    warp_col = let(out, "warpCol", warp % across * c["WN"], "and its first column")
    row = let(out, "row", warp_row + lane // QUAD, "this lane's first row of sums, and every eighth from there on")
    col = let(out, "col", warp_col + lane % QUAD * 2, "and its first two columns")
    half, two = c["MMA_M"] // 2, Const(2)
    m_iter = c["M_TILES"] * 2
    at = Place(
        row, col, Const(1), two, m_iter, c["N_TILES"], half, c["MMA_N"], {}, None, lane, Const(0), warp_row, warp_col
    )
    return out, at


def _in_group(s: Scope) -> tuple[list[Stmt], Place]:
    """A thread's place in the block's tile, where a warp group multiplies together: its warp has 16 of the group's 64
    rows; its lane two neighbours of every eighth column in two rows."""
    out: list[Stmt] = []
    group_row = let(out, "groupRow", s.tid // GROUP_THREADS * ROWS, "first row of this warp group in the block's tile")
    lane = let(out, "lane", s.tid % WARP)
    rows = ROWS // GROUP_WARPS
    row = let(
        out, "row", s.tid // WARP * rows + lane // QUAD, "first row of this thread's sums; the other is 8 further down"
    )
    col = let(out, "col", lane % 4 * 2, "its first two columns; every eighth from there on is its own")
    eight, tiles = Const(EIGHT), s.constants["N_TILES"].expr
    at = Place(
        row,
        col,
        Const(1),
        Const(2),
        Const(2),
        tiles,
        eight,
        eight,
        {},
        lane=lane,
        warp_row=group_row,
        warp_col=Const(0),
    )
    return out, at


def _apart(piece: int, warp: int) -> bool:
    """Whether rows within a piece, the piece's number and the warp's number set different bits, as far as the lowest
    three go, which swizzles use."""
    return piece & (piece - 1) == 0 and warp % 8 == 0


def _split(out: list[Stmt], index: Expr, level: Level, rows: Expr, cols: Expr) -> tuple[Expr, Expr]:
    """Row and column of the ``index``-th piece of a rows x cols arrangement."""
    if level.walk == "n":
        return (
            let(out, "threadRow", index // cols),
            let(out, "threadCol", index % cols, "consecutive threads walk along a row of C"),
        )
    return (
        let(out, "threadRow", index % rows, "consecutive threads walk down a column of C"),
        let(out, "threadCol", index // rows),
    )


def _edges(s: Scope) -> list[Stmt]:
    """How far the matrix reaches from the block's first row and column, where it may end inside the tile."""
    if not s.p.variant.guard:
        return []
    found: list[Stmt] = []
    for dim, name, why in (
        ("m", "rowsLeft", f"rows of C from this {_whose(s)}'s first to the last"),
        ("n", "colsLeft", f"columns of C from this {_whose(s)}'s first to the last"),
    ):
        if dim in s.p.variant.guard:
            var = s.left("m" if dim == "m" else "n")
            assert isinstance(var, Var) and var.name == name
            found.append(Let(var, SIZES[dim] - s.origin("m" if dim == "m" else "n"), why))
    return found


def _slice_of_k(s: Scope) -> list[Stmt]:
    """Which part of K this block sums, where several share it: whole steps of BK, nothing for a block too many."""
    if s.p.sums.parts == 1:
        s.batch = BLOCK_Z if s.p.batched else s.batch
        return []
    out: list[Stmt] = []
    why = "blocks that share the sum over K of one tile of C"
    splits = s.constant("SPLIT_K", s.p.sums.parts, str(s.p.sums.parts), why)
    step = next((s.constants[x].expr for x in ("BK", "STEP_K") if x in s.constants), Const(1))
    whole = (K + (step * splits - 1)) // (step * splits) * step
    size = let(out, "sliceK", whole, "how much of K each of the SPLIT_K blocks sums, at most")
    if s.p.batched:
        s.batch = let(out, "batch", BLOCK_Z // splits, "which product of the batch this block is of")
        s.part = let(out, "part", BLOCK_Z % splits, "and which part of K it has")
    first = let(out, "firstK", s.part * size, "where this block's part of K begins")
    depth = Var("depth", 0, BIGGEST, uniform=True)
    out.append(Let(depth, smaller(size, K - first), "its length; 0 or less if nothing remains"))
    s.first_k, s.depth = first, depth
    return out


def _block_pointer(s: Scope, operand: str) -> Pointer:
    offset: Expr = Const(0)
    for dim in DIMS[operand]:
        scale: Expr = LEADING[operand] if dim == s.p.strided(operand) else Const(1)
        offset = offset + (s.first_k if dim == "k" else s.origin(dim)) * scale
    if s.p.batched and not (operand == "C" and s.p.second_kernel):
        offset = s.batch * stride_of(s.p.matrix(operand)) + offset
    if operand == "C" and s.p.second_kernel:
        # Each block's sums go to a matrix of their own.
        offset = BLOCK_Z * (M if s.p.contiguous("C") == "n" else N) * LDC + offset
    return Pointer(f"block{operand}", s.matrix(operand), offset)
