"""Changes of a spec to try against what binds it: of one setting, and of several that only help together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gemmgen.spec.model import Spec


@dataclass(frozen=True)
class Change:
    """A change: the words for it, the setting whose line it is on, and what to pass to ``replace``."""

    words: str
    setting: str
    fields: dict[str, Any]


def changes(spec: Spec, by: str) -> Iterator[Change]:
    """Settings that bear on a resource, those that cost least to write first."""
    use = spec.use
    bm, bn, bk = spec.block
    if "coalescing" not in use and by in ("l1", "l2", "latency"):
        yield _toggle(spec, "coalescing")
        return  # the rest is worth looking at once rows are walked along
    if "smem" not in use and by not in ("compute", "dram"):
        yield _toggle(spec, "smem", block=(bm, bn, max(bk, 32)))
    if "smem" in use and by in ("shared", "issue", "latency"):
        yield from _larger_thread_tiles(spec)
        missing = [t for t in ("transposeA", "float4") if t not in use and "alongK" not in use]
        if missing:
            yield _toggle(spec, *missing)
        yield from _warp_tiles(spec)
        yield from _pipelines(spec)
    if by in ("l2", "dram"):
        yield Change(f"tile block {2 * bm}x{2 * bn}x{bk}", "tile block", {"block": (2 * bm, 2 * bn, bk)})
    if by == "latency" and "smem" in use:
        yield Change(f"tile block {bm}x{bn}x{2 * bk}", "tile block", {"block": (bm, bn, 2 * bk)})


def _pipelines(spec: Spec) -> Iterator[Change]:
    """Tiles on their way while others are multiplied, and fragments fetched a step ahead."""
    if spec.stages == 1:
        yield Change("stages 2", "stages", {"stages": 2})
        yield _toggle(spec, "cpasync", words=" with stages 3", stages=3)
    if "prefetch" not in spec.use:
        yield _toggle(spec, "prefetch")


def _toggle(spec: Spec, *names: str, words: str = "", **others: Any) -> Change:
    return Change(f"adding {_listed(names)} to use{words}", "use", {"use": spec.use | set(names), **others})


def _larger_thread_tiles(spec: Spec) -> Iterator[Change]:
    """More outputs a thread, so that a value from shared memory feeds more multiply-adds; the block grows with it."""
    tm, tn = spec.thread
    bm, bn, bk = spec.block
    for thread, block in (
        ((8, 1), (64, 64, 8)),
        ((8, 8), (128, 128, 8)),
        ((2 * tm, tn), (2 * bm, bn, bk)),
        ((tm, 2 * tn), (bm, 2 * bn, bk)),
    ):
        if thread[0] * thread[1] > tm * tn:
            words = f"tile thread {thread[0]}x{thread[1]} with tile block {block[0]}x{block[1]}x{block[2]}"
            yield Change(
                words, "tile thread", {"thread": thread, "block": block, "warp": None, "use": spec.use - {"warptile"}}
            )


def _warp_tiles(spec: Spec) -> Iterator[Change]:
    if "warptile" in spec.use:
        return
    bm, bn, bk = spec.block
    for warp, thread, bk_ in (((64, 64), (8, 4), max(bk, 16)), ((bm // 2, bn // 2), spec.thread, bk)):
        words = f"adding warptile to use, with tile warp {warp[0]}x{warp[1]} and tile thread {thread[0]}x{thread[1]}"
        fields = {"warp": warp, "thread": thread, "block": (bm, bn, bk_), "use": spec.use | {"warptile"}}
        yield Change(words, "use", fields)


# --- Together -------------------------------------------------------------------------------------------------------


def sets(spec: Spec, by: str) -> Iterator[Change]:
    """Settings that only help together, as one change: a pipeline and what it needs beside it."""
    if "smem" not in spec.use or by not in ("shared", "issue", "compute", "latency"):
        return
    # Tiles and fragments on their way take registers, of which blocks that must fit leave too few.
    more = {"min_blocks": 0} if spec.min_blocks else {}
    without = [f"min_blocks {spec.min_blocks}"] if spec.min_blocks else []
    if more and spec.stages == 1:
        yield Change(f"stages 2 without {without[0]}", "min_blocks", {"stages": 2, **more})
    if not spec.use & {"cpasync", "tma"}:
        yield _by_cpasync(spec, more, without)
    if "tma" not in spec.use and "warptile" in spec.use:
        yield _by_tma(spec, more, without)


def _by_cpasync(spec: Spec, more: dict[str, Any], without: list[str]) -> Change:
    """Copies past the registers, two tiles ahead, and fragments a step ahead; columns of a transposed tile are spread
    over the banks."""
    pad = {"pad_a": 4} if "transposeA" in spec.use else {}
    words = f"{_without(without)} with stages 3{' and pad_a 4' if pad else ''}"
    return _toggle(spec, "cpasync", "prefetch", words=words, stages=3, **pad, **more)


def _by_tma(spec: Spec, more: dict[str, Any], without: list[str]) -> Change:
    """Copies by the tensor memory accelerator, and what it makes needless: it cannot transpose, nor pad. An access
    along k brings several steps' fragments, and only closed steps then keep the order of their products."""
    bm, bn, _ = spec.block
    gone = sorted(spec.use & {"transposeA", "cpasync", "spread"})
    new = ["tma", "alongK", *(["separators"] if "prefetch" in spec.use and "separators" not in spec.use else [])]
    words = f"adding {_listed(new)} to use{_without(gone + without)} with tile block {bm}x{bn}x32 and stages 2"
    fields = {"use": (spec.use - set(gone)) | {*new, "float4"}, "block": (bm, bn, 32), "stages": 2}
    return Change(words, "use", {**fields, "pad_a": 0, "pad_b": 0, **more})


def _without(gone: Sequence[str]) -> str:
    return f", without {_listed(gone)}," if gone else ""


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
