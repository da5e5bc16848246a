"""Changes of a spec to try against what binds it: of one setting, and of several that only help together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gemmgen.spec.model import SETTINGS, TOGGLES, Spec


@dataclass(frozen=True)
class Change:
    """A change: the words for it, first (``head``) those for the ``setting`` whose line it is on; and what to pass to
    ``replace``."""

    head: str
    rest: str
    setting: str
    fields: dict[str, Any]

    @property
    def words(self) -> str:
        return self.head + self.rest


def changes(spec: Spec, by: str) -> Iterator[Change]:
    """Settings that bear on a resource, those that cost least to write first."""
    use = spec.use
    bm, bn, bk = spec.block
    if spec.persistent:
        yield change(spec, persistent=0)
    if "coalescing" not in use and by in ("l1", "l2", "latency"):
        yield _adding(spec, "coalescing")
        return  # the rest is worth looking at once rows are walked along
    if "smem" not in use and by not in ("compute", "dram"):
        yield _adding(spec, "smem", block=(bm, bn, max(bk, 32)))
    if "smem" in use and by in ("shared", "issue", "latency"):
        yield from _larger_thread_tiles(spec)
        missing = [t for t in ("transposeA", "float4") if t not in use and "alongK" not in use]
        if missing:
            yield _adding(spec, *missing)
        yield from _warp_tiles(spec)
        yield from _pipelines(spec)
    if by in ("l2", "dram"):
        yield change(spec, block=(2 * bm, 2 * bn, bk))
    if by == "latency" and "smem" in use:
        yield change(spec, block=(bm, bn, 2 * bk))


def _pipelines(spec: Spec) -> Iterator[Change]:
    """Tiles on their way while others are multiplied, and fragments fetched a step ahead."""
    if spec.stages == 1:
        yield change(spec, stages=2)
        if not spec.use & {"cpasync", "tma"}:
            yield _adding(spec, "cpasync", stages=3)
    if "prefetch" not in spec.use:
        yield _adding(spec, "prefetch")


def _larger_thread_tiles(spec: Spec) -> Iterator[Change]:
    """More outputs a thread, so that a value from shared memory feeds more multiply-adds; the block grows with it, and
    the warp's tile too, or is left out."""
    tm, tn = spec.thread
    bm, bn, bk = spec.block
    if spec.has("warptile") and spec.warp is not None:
        wm, wn = spec.warp
        yield change(spec, thread=(2 * tm, tn), warp=(2 * wm, wn), block=(2 * bm, bn, bk))
        yield change(spec, thread=(tm, 2 * tn), warp=(wm, 2 * wn), block=(bm, 2 * bn, bk))
    for thread, block in (
        ((8, 1), (64, 64, 8)),
        ((8, 8), (128, 128, 8)),
        ((2 * tm, tn), (2 * bm, bn, bk)),
        ((tm, 2 * tn), (bm, 2 * bn, bk)),
    ):
        if thread[0] * thread[1] > tm * tn:
            yield change(spec, thread=thread, block=block, warp=None, use=spec.use - {"warptile"})


def _warp_tiles(spec: Spec) -> Iterator[Change]:
    if "warptile" in spec.use:
        return
    bm, bn, bk = spec.block
    for warp, thread, deep in (((64, 64), (8, 4), max(bk, 16)), ((bm // 2, bn // 2), spec.thread, bk)):
        yield _adding(spec, "warptile", warp=warp, thread=thread, block=(bm, bn, deep))


# --- Together -------------------------------------------------------------------------------------------------------


def sets(spec: Spec, by: str) -> Iterator[Change]:
    """Settings that only help together, as one change: a pipeline and what it needs beside it."""
    if "smem" not in spec.use or by not in ("shared", "issue", "compute", "latency"):
        return
    # Tiles and fragments on their way take registers, of which blocks that must fit leave too few.
    if spec.min_blocks and spec.stages == 1:
        yield change(spec, stages=2, min_blocks=0)
    if not spec.use & {"cpasync", "tma"}:
        yield _by_cpasync(spec)
    if "tma" not in spec.use and "warptile" in spec.use:
        yield _by_tma(spec)


def _by_cpasync(spec: Spec) -> Change:
    """Copies past the registers, two tiles ahead, and fragments a step ahead; columns of a transposed tile are spread
    over the banks."""
    pad = {"pad_a": 4} if "transposeA" in spec.use else {}
    return _adding(spec, "cpasync", "prefetch", stages=3, **pad, min_blocks=0)


def _by_tma(spec: Spec) -> Change:
    """Copies by the tensor memory accelerator, and what it makes needless: it cannot transpose, nor pad. An access
    along k brings several steps' fragments, and only closed steps then keep the order of their products."""
    bm, bn, _ = spec.block
    new = {"tma", "alongK", "float4", *(["separators"] if "prefetch" in spec.use else [])}
    use = (spec.use - {"transposeA", "cpasync", "spread"}) | new
    return change(spec, use=use, block=(bm, bn, 32), stages=2, pad_a=0, pad_b=0, min_blocks=0)


# --- In words -------------------------------------------------------------------------------------------------------


def _adding(spec: Spec, *names: str, **others: Any) -> Change:
    return change(spec, use=spec.use | set(names), **others)


def change(spec: Spec, **fields: Any) -> Change:
    """A change with its words, made of every setting that it changes: who writes just what they say, has the spec."""
    use = fields.get("use", spec.use)
    added = [t.name for t in TOGGLES if t.name in use - spec.use]
    gone = [t.name for t in TOGGLES if t.name in spec.use - use]
    new: list[str] = []
    lines: list[str] = []  # of the settings in ``new``, and of those that are left out
    for row in SETTINGS:
        name = row.fields[0]
        if name == "use" or name not in fields or fields[name] == getattr(spec, name):
            continue
        lines.append(row.name)
        if fields[name] == row.default:
            gone.append(f"{row.name} {_text(getattr(spec, name))}")
        else:
            new.append(f"{row.name} {_text(fields[name])}")
    new.sort(key=_widest_last)
    if added:
        head, setting = f"adding {listed(added)} to use", "use"
    elif new:
        head, *new = new
        setting = next(line for line in lines if head.startswith(line))
    else:
        head, setting, gone = f"leaving out {listed(gone)}", (lines or ["use"])[0], []
    rest = f", without {listed(gone)}" if gone else ""
    rest += f"{',' if gone else ''} with {listed(new)}" if new else ""
    return Change(head, rest, setting, fields)


def _widest_last(words: str) -> int:
    """Of tiles the thread's is the one that the others follow."""
    order = ("tile thread", "tile warp", "tile block")
    return next((i for i, start in enumerate(order) if words.startswith(start)), len(order))


def _text(value: int | tuple[int, ...]) -> str:
    """As on the setting's line."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def listed(words: Sequence[str]) -> str:
    """ "float4", "transposeA and float4", "cpasync, prefetch and snake"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
