"""The effect of the next rung on a bottleneck, computed from both: its cost, counts, and the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmgen.analysis.bottleneck import CAUSES, Bottleneck, bottleneck, cost_of, costs
from gemmgen.text.numbers import time_text

if TYPE_CHECKING:
    from gemmgen.analysis.explain import Explanation
    from gemmgen.report.page.recorded import Time

LOWERED = 0.97
"""A cost counts as reduced where less than this share of it is left."""
NOTABLE = 0.05
"""A change of another cause is mentioned where it exceeds this share of the expected time."""
GONE_AT = 0.03
"""What the next rung reduces instead of the bottleneck is mentioned from this share of the expected time on."""
WHOLE = ("shared", "l1")
"""Causes that are resources: their whole time is shown."""
MEET = 1.2
"""Bank conflicts are mentioned where a load takes more than this many times the wavefronts it took."""
UNEXPLAINED, SHORTER = 1.25, 0.9
"""Measured over expected time from which, and below which, the model misses something."""
APART = 0.025
"""Expected and measured savings that differ by more than this share of the time are mentioned."""


@dataclass(frozen=True)
class Remedy:
    """``cost``: the cost of the bottleneck before and after as text, and what else changes; ``time``: the same for the
    expected time; ``saved``: the share of the expected time that all changes save together."""

    cost: str
    time: str
    saved: float

    @property
    def text(self) -> str:
        return f"{self.cost} {self.time}"


def lowers(after: Explanation, of: Bottleneck) -> bool:
    """Whether another kernel reduces a bottleneck."""
    return cost_of(after, of) < LOWERED * of.seconds


def remedy(e: Explanation, after: Explanation, delta: Sequence[str]) -> Remedy:
    """The effect of the next rung on a rung's bottleneck; ``delta`` are the settings that it changes."""
    of = bottleneck(e)
    was, now = of.seconds, cost_of(after, of)
    what = f"Time lost to {of.short}" if of.cause else f"Time of {of.short}"
    if of.resource == "shared" and not of.cause:
        what += " (loads as compiled)"
    if lowers(after, of):
        cost = f"{what}: falls from {_seconds(was)} to {_seconds(now)}."
    elif now > was / LOWERED:
        cost = f"{what}: rises from {_seconds(was)} to {_seconds(now)}."
    else:
        cost = f"{what}: stays at about {_seconds(was)}."
    parts = [cost, *_besides(e, after, of, lowered=lowers(after, of))]
    return Remedy(" ".join(parts), _time(e, after, delta), 1 - after.bound.total_s / e.bound.total_s)


def _besides(e: Explanation, after: Explanation, of: Bottleneck, lowered: bool) -> Iterator[str]:
    """What the next rung reduces instead of the bottleneck, and what it increases."""
    if of.resource == "shared" and not lowered and (said := _already_joined(e, after)):
        yield said
    before, then = costs(e), costs(after)
    change = {cause: then[cause] - before[cause] for cause in CAUSES if cause not in (of.cause, of.resource)}
    least, most = (pick(change, key=change.__getitem__) for pick in (min, max))
    was, now = _moved(e, after, least, before, then)
    if not lowered and -change[least] > GONE_AT * e.bound.total_s and now < was:
        yield f"It reduces {_what(least)} instead: from {_seconds(was)} to {_seconds(now)}."
    was, now = _moved(e, after, most, before, then)
    if change[most] > NOTABLE * e.bound.total_s and now > was:
        yield f"It increases {_what(most)}: from {_seconds(was)} to {_seconds(now)}."
    yield from _conflicts(e, after)


def _conflicts(e: Explanation, after: Explanation) -> Iterator[str]:
    """Bank conflicts that the rung before did not have."""
    was, now = (x.counts.total("shared", "load") for x in (e, after))
    if was.ideal_wavefronts and now.ideal_wavefronts:
        before, then = was.wavefronts / was.ideal_wavefronts, now.wavefronts / now.ideal_wavefronts
        if then > MEET * before:
            yield (
                f"It increases bank conflicts: shared loads as written take {then:.3g} times the wavefronts without "
                f"conflicts, {before:.3g} times before."
            )


def _what(cause: str) -> str:
    return f"the time of {CAUSES[cause]}" if cause in WHOLE else f"time lost to {CAUSES[cause]}"


def _moved(
    e: Explanation, after: Explanation, cause: str, before: Mapping[str, float], then: Mapping[str, float]
) -> tuple[float, float]:
    """The values before and after, as in the tables of both rungs: for a resource its whole time."""
    whole = cause in WHOLE
    return (e.bound.seconds(cause), after.bound.seconds(cause)) if whole else (before[cause], then[cause])


def _already_joined(e: Explanation, after: Explanation) -> str:
    """A sentence where there are fewer wavefronts as written, but not as compiled, because the compiler merges
    loads."""
    was, now = e.counts.total("shared", "load"), after.counts.total("shared", "load")
    if not now.wavefronts or was.wavefronts <= was.merged_wavefronts or now.wavefronts >= was.wavefronts:
        return ""
    return (
        f"Its shared loads take {was.wavefronts / now.wavefronts:.3g}\u00d7 fewer wavefronts as written, but the "
        f"compiler already merges the loads of {e.ir.name} into wider ones."
    )


def _time(e: Explanation, after: Explanation, delta: Sequence[str]) -> str:
    was, now = e.bound.total_s, after.bound.total_s
    change = now / was - 1
    who = "This change" if len(delta) == 1 else f"These {len(delta)} changes together"
    if abs(change) < 0.005:
        return f"{who} leave{'s' if len(delta) == 1 else ''} the expected time at {time_text(now)}."
    verb = ("lower" if change < 0 else "raise") + ("s" if len(delta) == 1 else "")
    more = "less" if change < 0 else "more"
    return f"{who} {verb} the expected time from {time_text(was)} to {time_text(now)}, {abs(change):.0%} {more}."


def _seconds(seconds: float) -> str:
    return time_text(seconds) if seconds > 0 else "0"


def measured_text(before: Time, after: Time, name: str, saved: float | None, unseen: str = "") -> str:
    """The measured effect of the next rung, beside the share of the expected time that it ``saved``; ``unseen`` is why
    the model sees less of it."""
    change = after.seconds / before.seconds - 1
    times = f"{time_text(after.seconds)} after {time_text(before.seconds)}"
    if abs(change) < 0.005:
        return f"{name} takes the same time: {times}."
    more = "" if saved is None else _beside_the_model(-change, saved, unseen)
    return f"{name} takes {abs(change):.0%} {'less' if change < 0 else 'more'} time: {times}.{more}"


def _beside_the_model(measured: float, saved: float, unseen: str) -> str:
    """A sentence where the measured saving differs from the modelled one."""
    model = f" The model expects {saved:.0%}" if saved >= 0.005 else " The model expects no gain"
    if measured - saved > APART:
        return f"{model}: {unseen or 'part of what was saved is not modelled'}."
    if saved - measured > APART:
        return f"{model}: part of what is lost is not modelled."
    return ""


def unexplained(e: Explanation, time: Time) -> str:
    """A sentence where measured and expected time differ much; else empty."""
    ratio = time.seconds / e.bound.total_s if e.bound.total_s else 1.0
    if ratio < SHORTER:
        return f"The measured time is {ratio:.3g} times the expected one: the model overestimates the exposed latency."
    if ratio < UNEXPLAINED:
        return ""
    return f"The measured time is {ratio:.3g} times the expected one: something that is not modelled limits it too."


def named(of: Bottleneck, leaves: str) -> str:
    """A bottleneck's name, with the ladder's words where they are about the same bottleneck."""
    return of.name + leaves.removeprefix(of.short) if leaves.startswith(of.short) else of.name
