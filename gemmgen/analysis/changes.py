"""Changes of a spec to try against its bottleneck: of one setting, and of several that only help together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gemmgen.spec.model import SETTINGS, TOGGLES, Spec


@dataclass(frozen=True)
class Change:
    """A change as text and as fields for ``replace``. ``head`` is its first item, which stands on the line of
    ``setting``; ``rest`` are the other items, each after a comma."""

    head: str
    rest: str
    setting: str
    fields: dict[str, Any]

    @property
    def words(self) -> str:
        """Items separated by commas: "+ float4" adds a toggle, "stages 3" sets a value, "- min_blocks" removes."""
        return self.head + self.rest


def changes(spec: Spec, by: str) -> Iterator[Change]:
    """Changes that may reduce the load on a resource, the smallest changes first."""
    use = spec.use
    bm, bn, bk = spec.block
    if spec.persistent:
        yield change(spec, persistent=0)
    if "coalescing" not in use and by in ("l1", "l2", "latency"):
        yield _adding(spec, "coalescing")
        return  # nothing else matters before accesses are coalesced
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
    """Tiles in flight while another is multiplied, and fragments loaded one step early."""
    if spec.stages == 1:
        yield change(spec, stages=2)
        if not spec.use & {"cpasync", "tma"}:
            yield _adding(spec, "cpasync", stages=3)
    if "prefetch" not in spec.use:
        yield _adding(spec, "prefetch")


def _larger_thread_tiles(spec: Spec) -> Iterator[Change]:
    """More elements of C per thread, so that each value from shared memory feeds more FMAs. The block tile grows too;
    the warp tile grows or is removed."""
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
    """Settings that only help together, as one change: a pipeline and what it needs."""
    if "smem" not in spec.use or by not in ("shared", "issue", "compute", "latency"):
        return
    # Tiles and fragments in flight take registers, and min_blocks leaves too few of them.
    if spec.min_blocks and spec.stages == 1:
        yield change(spec, stages=2, min_blocks=0)
    if not spec.use & {"cpasync", "tma"}:
        yield _by_cpasync(spec)
    if "tma" not in spec.use and "warptile" in spec.use:
        yield _by_tma(spec)


def _by_cpasync(spec: Spec) -> Change:
    """cp.async copies two tiles ahead that bypass registers, and fragments loaded one step early; padding avoids the
    bank conflicts of a transposed tile."""
    pad = {"pad_a": 4} if "transposeA" in spec.use else {}
    return _adding(spec, "cpasync", "prefetch", stages=3, **pad, min_blocks=0)


def _by_tma(spec: Spec) -> Change:
    """TMA copies, without transposition and padding, which TMA cannot do. An access along k loads the fragments of
    several steps, and only separators then keep the FMA order of each step."""
    bm, bn, _ = spec.block
    new = {"tma", "alongK", "float4", *(["separators"] if "prefetch" in spec.use else [])}
    use = (spec.use - {"transposeA", "cpasync", "spread"}) | new
    return change(spec, use=use, block=(bm, bn, 32), stages=2, pad_a=0, pad_b=0, min_blocks=0)


# --- In words -------------------------------------------------------------------------------------------------------


def _adding(spec: Spec, *names: str, **others: Any) -> Change:
    return change(spec, use=spec.use | set(names), **others)


def change(spec: Spec, **fields: Any) -> Change:
    """A change with its text, which names every setting that it changes: applying the text gives the spec."""
    use = fields.get("use", spec.use)
    items = [("use", f"+ {t.name}") for t in TOGGLES if t.name in use - spec.use]
    gone = [("use", f"- {t.name}") for t in TOGGLES if t.name in spec.use - use]
    new: list[tuple[str, str]] = []
    for row in SETTINGS:
        name = row.fields[0]
        if name == "use" or name not in fields or fields[name] == getattr(spec, name):
            continue
        if fields[name] == row.default:
            gone.append((row.name, f"- {row.name}"))
        else:
            new.append((row.name, f"{row.name} {_text(fields[name])}"))
    items += sorted(new, key=lambda item: _widest_last(item[1]))
    (setting, head), *rest = items + gone
    return Change(head, "".join(f", {words}" for _, words in rest), setting, fields)


def _widest_last(words: str) -> int:
    """The thread tile comes first: the other tiles follow from it."""
    order = ("tile thread", "tile warp", "tile block")
    return next((i for i, start in enumerate(order) if words.startswith(start)), len(order))


def _text(value: int | tuple[int, ...]) -> str:
    """The value as the setting's line has it."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
