"""What a warp's memory instruction costs: shared-memory wavefronts, 32-byte sectors, distinct bytes.

The rule for shared memory was measured on an H200 (sm_90), counter by counter. An instruction of 1, 2 or 4 words a
lane is served in 1, 2 or 4 phases of 32, 16 or 8 consecutive lanes. A phase costs the largest number of distinct
words that it asks of one of the 32 banks. A load of 2 or 4 words in which every lane's address equals that of its
neighbour (lane ^ 1), or every lane's that of lane ^ 2, is served in half as many phases. Stores never merge. An access
of less than a word per lane is served as one of the word that it lies in: lanes that load or store different parts of
one word ask for that word once.

Global memory moves in sectors. An ordinary access takes the distinct ones of its warp. Two others were measured too, on
an H200, by launches of single warps and boxes whose addresses were chosen one by one:

- a copy of 16 bytes per lane past the L1 (``cp.async.cg``) is served by pairs of neighbouring lanes, each of which
  counts one sector for every cache line that it touches;
- the TMA engine takes a box row by row, and of a row what goes to one line of 128 bytes of shared memory by itself: the
  sectors in which lies what it has inside the matrix, in units of 16 bytes, and one for every 32 bytes of zeros.

The functions ending in ``_of`` take many warps at once as NumPy arrays of shape [warps, 32]; NumPy is imported only
when one is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from gemmgen.diagnostics import ArgumentError, flag, shown, whole_number
from gemmgen.ir.types import WARP

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Lanes = NDArray[np.int64]
    Mask = NDArray[np.bool_]

BANKS = 32
BANK_BYTES = 4
"""Bytes of a word: what one bank of shared memory gives to all lanes that ask for it."""
SECTOR = 32
"""Bytes of a sector: the unit in which global memory is moved."""
UNIT = 16
"""Bytes of the widest access of a lane, and the unit of what the TMA engine fetches."""
LINE = 128
"""Bytes of a cache line, four sectors under one tag."""


def shared_wavefronts(words: Sequence[int | None], width: int = 1, store: bool = False) -> int:
    """Wavefronts of one warp's shared-memory instruction, as the hardware counts them (sm_90).

    ``words[lane]`` is the address of the lane's first 4-byte word, None for an inactive lane; up to 32 of them.
    ``width`` is words per lane: 1, 2 or 4; an address must be a multiple of it, as the hardware demands. Raises
    ArgumentError for anything else.
    """
    width, store = whole_number("width", width), flag("store", store)
    if width not in (1, 2, 4):
        raise ArgumentError(f"width is words per lane: 1, 2 or 4, not {width!r}")
    lanes = _addresses(words)
    for lane, word in enumerate(lanes):
        if word is not None and word % width:
            raise ArgumentError(
                f"lane {lane}: word address {word} is no multiple of width {width}; an access of {width} words starts "
                f"at a multiple of {width}, such as {word - word % width}"
            )
    return warp_wavefronts(lanes, width, store)


def _addresses(words: Iterable[int | None]) -> list[int | None]:
    """What a caller gives as the addresses of a warp's lanes. Raises ArgumentError for anything else."""
    try:
        if isinstance(words, (str, bytes, Mapping)):
            raise TypeError
        given = list(islice(words, WARP + 1))
    except TypeError:
        wanted = "a list of word addresses, one for each lane, with None for a lane that is inactive"
        raise ArgumentError(f"words is {shown(words)}; it must be {wanted}") from None
    if len(given) > WARP:
        count = len(words) if isinstance(words, Sized) else "more"
        raise ArgumentError(f"a warp has {WARP} lanes, and {count} addresses were given")
    for lane, word in enumerate(given):
        if word is not None and isinstance(word, int) and word < 0:
            raise ArgumentError(f"lane {lane}: word address {word} is negative")
    return [None if w is None else whole_number(f"lane {lane}: word address", w) for lane, w in enumerate(given)]


def warp_wavefronts(words: Sequence[int | None], width: int = 1, store: bool = False) -> int:
    """:func:`shared_wavefronts` of addresses that are known to be good, or are to be counted whatever they are."""
    lanes = [*words, *[None] * (WARP - len(words))]
    size = _phase_size(lanes, width, store)
    return sum(_phase_cost(lanes[start : start + size], width) for start in range(0, WARP, size))


def phase_lanes(width: int) -> int:
    """Consecutive lanes that one phase of an access of ``width`` words per lane serves."""
    return WARP // width


def ideal_wavefronts(words: Sequence[int | None], width: int = 1, store: bool = False) -> int:
    """Wavefronts of the same instruction if no bank were asked for two words: one for each phase with an active lane.

    :func:`shared_wavefronts` over this is what people call an n-way bank conflict.
    """
    lanes = [*words, *[None] * (WARP - len(words))]
    size = _phase_size(lanes, width, store)
    return sum(any(w is not None for w in lanes[start : start + size]) for start in range(0, WARP, size))


def lanes_together(words: Sequence[int | None], width: int = 1, store: bool = False) -> int:
    """Consecutive lanes that one phase of this instruction serves: as :func:`phase_lanes`, or twice as many where
    lanes that ask for the same words are served as one."""
    return _phase_size([*words, *[None] * (WARP - len(words))], width, store)


def _phase_size(lanes: Sequence[int | None], width: int, store: bool) -> int:
    merged = not store and width > 1 and (_mergeable(lanes, 1) or _mergeable(lanes, 2))
    return phase_lanes(width) * (2 if merged else 1)


def _mergeable(lanes: Sequence[int | None], step: int) -> bool:
    pairs = ((lanes[i], lanes[i ^ step]) for i in range(WARP) if i < i ^ step)
    return all(a == b or a is None or b is None for a, b in pairs)


def _phase_cost(lanes: Sequence[int | None], width: int) -> int:
    asked = {word + i for word in lanes if word is not None for i in range(width)}
    load = [0] * BANKS
    for word in asked:
        load[word % BANKS] += 1
    return max(load)


# --- Many warps at once -------------------------------------------------------------------------------------------


def in_words(addresses: Lanes, nbytes: int) -> tuple[Lanes, int]:
    """An access of ``nbytes`` a lane at these byte addresses, as :func:`wavefronts_of` takes it: the first word of
    every lane, and words per lane. What is narrower than a word is served as the word that it lies in."""
    return addresses // BANK_BYTES, max(1, nbytes // BANK_BYTES)


def wavefronts_of(words: Lanes, active: Mask, width: int = 1, store: bool = False) -> Lanes:
    """:func:`shared_wavefronts` of many warps: word addresses [warps, 32] and which lanes are active -> [warps]."""
    return _by_pattern(words, active, BANKS, lambda w, a: _wavefronts(w, a, width, store))


def ideal_wavefronts_of(words: Lanes, active: Mask, width: int = 1, store: bool = False) -> Lanes:
    """:func:`ideal_wavefronts` of many warps: word addresses [warps, 32] and which lanes are active -> [warps]."""
    return _by_pattern(words, active, BANKS, lambda w, a: _ideal(w, a, width, store))


def sectors_of(addresses: Lanes, active: Mask, nbytes: int = 4) -> Lanes:
    """Distinct 32-byte sectors that each warp touches with ``nbytes`` a lane: byte addresses [warps, 32] -> [warps]."""
    return _by_pattern(addresses, active, SECTOR, lambda w, a: _pieces(w, a, nbytes, SECTOR))


def pair_sectors_of(addresses: Lanes, active: Mask) -> Lanes:
    """Sectors that copies of 16 bytes per lane past the L1 count there: byte addresses [warps, 32] -> [warps]."""
    return _by_pattern(addresses, active, LINE, _by_pairs)


def box_sectors_of(first: Lanes, pitch: int, columns: Lanes, rows: Lanes, box: tuple[int, int]) -> Lanes:
    """Sectors that the TMA engine fetches for boxes of ``box`` (bytes along a row, rows): [boxes] -> [boxes].

    ``first`` are the byte addresses of the boxes' corners and ``pitch`` the bytes from one row to the next, multiples
    of 16. Inside the matrix lie ``columns`` bytes of ``rows`` rows of each.
    """
    import numpy as np

    along, across = box
    row = np.arange(across)[:, None]
    # The pieces of a row, from where to where: they begin with the lines of shared memory.
    line = np.arange(along // LINE + 2) * LINE - row * along % LINE
    start, end = np.clip(line, 0, along), np.clip(line + LINE, 0, along)
    inside = np.clip(columns[:, None, None], start, end) - start
    units = -(-inside * (row < rows[:, None, None]) // UNIT)
    at = (first[:, None, None] + row * pitch + start) % SECTOR
    fetched = -(-(at * (units > 0) + units * UNIT) // SECTOR)
    zeros = -(-(-(start - end) // UNIT - units) // (SECTOR // UNIT))
    total: Lanes = (fetched + zeros).sum(axis=(1, 2), dtype=np.int64)
    return total


def lines_of(addresses: Lanes, active: Mask, nbytes: int = 4) -> Lanes:
    """Distinct 128-byte cache lines that each warp touches, each one look-up in L1: byte addresses [warps, 32] ->
    [warps]."""
    return _by_pattern(addresses, active, LINE, lambda w, a: _pieces(w, a, nbytes, LINE))


def bytes_used_of(addresses: Lanes, active: Mask, nbytes: int = 4) -> Lanes:
    """Distinct bytes that each warp asks for with ``nbytes`` a lane: byte addresses [warps, 32] -> [warps]."""
    return _by_pattern(addresses, active, 1, lambda w, a: _bytes_used(w, a, nbytes))


FEW_WARPS = 32
"""So many rows take longer to be told apart than to be worked out one by one."""


def _by_pattern(rows: Lanes, active: Mask, period: int, cost: Callable[[Lanes, Mask], Lanes]) -> Lanes:
    """``cost`` of each row, worked out once for rows that are equal up to a shift by a multiple of ``period``.

    Rows are told apart by a random hash; that they really are equal is then checked, so the answer is exact.
    """
    import numpy as np

    if len(rows) <= FEW_WARPS:
        return cost(rows, active)
    lowest = np.where(active, rows, np.iinfo(np.int64).max).min(axis=1)
    base = np.where(active.any(axis=1), lowest // period * period, 0)
    shifted = np.where(active, rows - base[:, None], -1)
    with np.errstate(over="ignore"):
        hashes = shifted @ _multipliers()
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    patterns = shifted[first]
    if len(first) == len(rows) or not np.array_equal(patterns[which], shifted):
        return cost(shifted, active)
    result: Lanes = cost(patterns, active[first])[which]
    return result


@cache
def _multipliers() -> Lanes:
    import numpy as np

    rows: Lanes = np.random.default_rng(20).integers(1, 1 << 62, size=WARP, dtype=np.int64) | 1
    return rows


def _wavefronts(words: Lanes, active: Mask, width: int, store: bool) -> Lanes:
    import numpy as np

    size = phase_lanes(width)
    if store or width == 1:
        return _phases(words, active, width, size)
    merged = _all_equal(words, active, 1) | _all_equal(words, active, 2)
    apart = _phases(words, active, width, size)
    return np.where(merged, _phases(words, active, width, 2 * size), apart) if merged.any() else apart


def _ideal(words: Lanes, active: Mask, width: int, store: bool) -> Lanes:
    import numpy as np

    def phases(size: int) -> Lanes:
        count: Lanes = active.reshape(len(words), WARP // size, size).any(axis=2).sum(axis=1, dtype=np.int64)
        return count

    size = phase_lanes(width)
    if store or width == 1:
        return phases(size)
    merged = _all_equal(words, active, 1) | _all_equal(words, active, 2)
    return np.where(merged, phases(2 * size), phases(size))


def _all_equal(words: Lanes, active: Mask, step: int) -> Mask:
    import numpy as np

    partner = np.arange(WARP) ^ step
    same: Mask = ((words == words[:, partner]) | ~active | ~active[:, partner]).all(axis=1)
    return same


def _phases(words: Lanes, active: Mask, width: int, size: int) -> Lanes:
    """Sum over the phases of ``size`` lanes of the fullest bank's distinct words."""
    import numpy as np

    count = len(words) * (WARP // size)
    lanes, used = words.reshape(count, size), active.reshape(count, size)
    if width > 1 and (lanes[used] % width).any():  # misaligned: spell out every word
        lanes = (lanes[:, :, None] + np.arange(width)).reshape(count, size * width)
        used = np.repeat(used, width, axis=1)
    keys = np.where(used, lanes % BANKS << 48 | lanes // BANKS, -1)
    keys.sort(axis=1)
    new = keys >= 0
    new[:, 1:] &= keys[:, 1:] != keys[:, :-1]
    row, _ = np.nonzero(new)
    load = np.bincount(row * BANKS + (keys[new] >> 48), minlength=count * BANKS).reshape(count, BANKS)
    result: Lanes = load.max(axis=1).reshape(len(words), WARP // size).sum(axis=1).astype(np.int64)
    return result


def _pieces(addresses: Lanes, active: Mask, nbytes: int, size: int) -> Lanes:
    """Distinct aligned pieces of ``size`` bytes."""
    import numpy as np

    pieces, used = addresses // size, active
    last = (addresses + (nbytes - 1)) // size
    if (last != pieces)[active].any():  # some lane's access straddles two
        pieces, used = np.concatenate([pieces, last], axis=1), np.concatenate([active, active], axis=1)
    keys = np.sort(np.where(used, pieces, -1), axis=1)
    new = keys >= 0
    new[:, 1:] &= keys[:, 1:] != keys[:, :-1]
    result: Lanes = new.sum(axis=1, dtype=np.int64)
    return result


def _by_pairs(addresses: Lanes, active: Mask) -> Lanes:
    """Cache lines that each pair of neighbouring lanes touches."""
    import numpy as np

    lines = addresses // LINE
    joined = (lines[:, ::2] == lines[:, 1::2]) & active[:, ::2] & active[:, 1::2]
    result: Lanes = active.sum(axis=1, dtype=np.int64) - joined.sum(axis=1, dtype=np.int64)
    return result


def _bytes_used(addresses: Lanes, active: Mask, nbytes: int) -> Lanes:
    import numpy as np

    far = np.iinfo(np.int64).max // 2
    keys = np.sort(np.where(active, addresses, far), axis=1)
    gaps = np.minimum(np.diff(keys, axis=1), nbytes)
    fresh = np.where(keys[:, :-1] < far, gaps, 0).sum(axis=1)
    result: Lanes = (fresh + np.where(keys[:, -1] < far, nbytes, 0)).astype(np.int64)
    return result
