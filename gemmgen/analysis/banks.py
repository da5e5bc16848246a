"""Which lane accesses which bank of shared memory: one instruction of one warp, phase by phase, word by word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmgen.analysis.accesses import THREAD, Access, sites
from gemmgen.ir.kernel import KernelIR
from gemmgen.ir.types import WARP
from gemmgen.isa.memory import BANK_BYTES, BANKS, ideal_wavefronts, in_words, lanes_together, shared_wavefronts


@dataclass(frozen=True)
class Phase:
    """Lanes that are served together, ``first`` to ``last``. ``banks``: for each bank the distinct words requested from
    it, each with the lanes that request it, in order of the lanes."""

    first: int
    last: int
    banks: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]

    @property
    def wavefronts(self) -> int:
        """The largest number of distinct words in one bank."""
        return max(len(words) for words in self.banks)


@dataclass(frozen=True)
class BankMap:
    """One instruction of a warp: the first word of each lane (None: inactive), words and bytes per lane, and the phases
    in which it is served. A lane that accesses less than a word still occupies one."""

    words: tuple[int | None, ...]
    width: int
    store: bool
    phases: tuple[Phase, ...]
    bytes: int

    @property
    def wavefronts(self) -> int:
        return shared_wavefronts(self.words, self.width, self.store)

    @property
    def ideal(self) -> int:
        """Wavefronts without bank conflicts."""
        return ideal_wavefronts(self.words, self.width, self.store)

    @property
    def ways(self) -> float:
        """Wavefronts over those without conflicts: 2 is a 2-way bank conflict, 1 is none."""
        return self.wavefronts / self.ideal if self.ideal else 1.0


def bank_map(words: Sequence[int | None], width: int = 1, store: bool = False) -> BankMap:
    """The map of an instruction. Raises ArgumentError as ``shared_wavefronts`` does."""
    lanes = (*words, *[None] * (WARP - len(words)))
    shared_wavefronts(lanes, width, store)
    size = lanes_together(lanes, width, store)
    phases = (_phase(lanes, start, size, width) for start in range(0, WARP, size))
    return BankMap(lanes, width, store, tuple(p for p in phases if p.wavefronts), BANK_BYTES * width)


def _phase(lanes: Sequence[int | None], start: int, size: int, width: int) -> Phase:
    banks: list[dict[int, list[int]]] = [{} for _ in range(BANKS)]
    for lane in range(start, start + size):
        first = lanes[lane]
        for word in range(first, first + width) if first is not None else ():
            banks[word % BANKS].setdefault(word, []).append(lane)
    found = tuple(tuple((word, tuple(asking)) for word, asking in bank.items()) for bank in banks)
    return Phase(start, start + size - 1, found)


@dataclass(frozen=True)
class Located:
    """A shared access of a kernel, and its number in program order among all accesses."""

    number: int
    access: Access


def shared_accesses(ir: KernelIR, scalars: Mapping[str, float]) -> Iterator[Located]:
    """The shared accesses that one block makes in a launch with these scalar arguments."""
    places = [site for site in sites(ir, {"alpha": 1.0, "beta": 0.0, **scalars}, (1, 1, 1)) if isinstance(site, Access)]
    for number, access in enumerate(places):
        if access.array.space == "shared" and access.array.dtype.floating:
            yield Located(number, access)


def access_map(access: Access, warp: int) -> BankMap:
    """The map of an access by one warp, in the first turn of every loop."""
    words = max(1, access.lane_bytes // BANK_BYTES)
    found = bank_map(lane_words(access, warp), words, access.op == "store")
    return replace(found, bytes=access.lane_bytes)


def lane_words(access: Access, warp: int) -> tuple[int | None, ...]:
    """The first word of each lane of a warp in the first iteration of every loop; None where the lane is inactive."""
    import numpy as np

    from gemmgen.analysis.classes import evaluate

    lanes = np.arange(WARP, dtype=np.int64) + WARP * warp
    values = {THREAD: lanes, **{axis.index.name: np.asarray(0, dtype=np.int64) for axis in access.axes}}
    words, _ = in_words(evaluate(access.address, values) * access.element_bytes, access.lane_bytes)
    words = np.broadcast_to(words, lanes.shape)
    active = np.broadcast_to(evaluate(access.active, values) != 0, lanes.shape)
    return tuple(int(w) if on else None for w, on in zip(words, active, strict=True))
