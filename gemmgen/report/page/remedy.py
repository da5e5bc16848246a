"""What the next rung does about a bottleneck, computed from both: in what it costs, in counts, and in time."""

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
"""A cost is lowered where less than this of it is left."""
NOTABLE = 0.05
"""A change of another cause is spoken of where it is more than this of the expected time."""
GONE_AT = 0.03
"""What a successor lowers instead of the bottleneck is named from this part of the expected time on."""
WHOLE = ("shared", "l1")
"""Causes that are resources, whose time is shown whole."""
MEET = 1.2
"""Conflicts are spoken of where a load takes more than this many times the wavefronts that it took."""
UNEXPLAINED, SHORTER = 1.25, 0.9
"""A measured time so many times the expected one has a cause that the model does not know."""
APART = 0.025
"""Parts of the time that are further apart than this, as expected and as measured, are spoken of."""


@dataclass(frozen=True)
class Remedy:
    """``cost``: what the bottleneck costs before and after, in words, and what else changes; ``time``: the same of the
    expected time, where the settings are as one; ``saved``: the part of the expected time that they save together."""

    cost: str
    time: str
    saved: float

    @property
    def text(self) -> str:
        return f"{self.cost} {self.time}"


def lowers(after: Explanation, of: Bottleneck) -> bool:
    """Whether another kernel has less of a bottleneck."""
    return cost_of(after, of) < LOWERED * of.seconds


def remedy(e: Explanation, after: Explanation, delta: Sequence[str]) -> Remedy:
    """What a rung's successor does about its bottleneck; ``delta`` are the settings that it changes."""
    of = bottleneck(e)
    was, now = of.seconds, cost_of(after, of)
    what = f"What is lost to {of.short}" if of.cause else f"The time that {of.short} alone would take"
    if of.resource == "shared" and not of.cause:
        what += ", loads joined as the compiler does,"
    if lowers(after, of):
        cost = f"{what} falls from {_seconds(was)} to {_seconds(now)}."
    elif now > was / LOWERED:
        cost = f"{what} rises, from {_seconds(was)} to {_seconds(now)}."
    else:
        cost = f"{what} stays near {_seconds(was)}."
    parts = [cost, *_besides(e, after, of, lowered=lowers(after, of))]
    return Remedy(" ".join(parts), _time(e, after, delta), 1 - after.bound.total_s / e.bound.total_s)


def _besides(e: Explanation, after: Explanation, of: Bottleneck, lowered: bool) -> Iterator[str]:
    """What the successor lowers where it does not lower the bottleneck, and what it pays for what it lowers."""
    if of.resource == "shared" and not lowered and (said := _already_joined(e, after)):
        yield said
    before, then = costs(e), costs(after)
    change = {cause: then[cause] - before[cause] for cause in CAUSES if cause not in (of.cause, of.resource)}
    least, most = (pick(change, key=change.__getitem__) for pick in (min, max))
    was, now = _moved(e, after, least, before, then)
    if not lowered and -change[least] > GONE_AT * e.bound.total_s and now < was:
        yield f"It goes at {CAUSES[least]}: {_what(least)} falls from {_seconds(was)} to {_seconds(now)}."
    was, now = _moved(e, after, most, before, then)
    if change[most] > NOTABLE * e.bound.total_s and now > was:
        yield f"It pays with {CAUSES[most]}: {_what(most)} rises from {_seconds(was)} to {_seconds(now)}."
    yield from _conflicts(e, after)


def _conflicts(e: Explanation, after: Explanation) -> Iterator[str]:
    """Where lanes meet in banks that did not."""
    was, now = (x.counts.total("shared", "load") for x in (e, after))
    if was.ideal_wavefronts and now.ideal_wavefronts:
        before, then = was.wavefronts / was.ideal_wavefronts, now.wavefronts / now.ideal_wavefronts
        if then > MEET * before:
            yield (
                f"It pays with bank conflicts: as written, a shared load takes {then:.3g} times the wavefronts of one "
                f"without any, {before:.3g} times before."
            )


def _what(cause: str) -> str:
    return "the time that this alone would take" if cause in WHOLE else "what is lost to that"


def _moved(
    e: Explanation, after: Explanation, cause: str, before: Mapping[str, float], then: Mapping[str, float]
) -> tuple[float, float]:
    """From what to what, as the rungs' own tables have it: a resource by all the time that it takes."""
    whole = cause in WHOLE
    return (e.bound.seconds(cause), after.bound.seconds(cause)) if whole else (before[cause], then[cause])


def _already_joined(e: Explanation, after: Explanation) -> str:
    """Where fewer wavefronts are asked for, but not fewer are left once the compiler has joined loads."""
    was, now = e.counts.total("shared", "load"), after.counts.total("shared", "load")
    if not now.wavefronts or was.wavefronts <= was.merged_wavefronts or now.wavefronts >= was.wavefronts:
        return ""
    return (
        f"Its loads take {was.wavefronts / now.wavefronts:.3g}\u00d7 fewer wavefronts as written, but the compiler had "
        f"joined those of {e.ir.name} into wider ones already."
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
    return time_text(seconds) if seconds > 0 else "nothing"


def measured_text(before: Time, after: Time, name: str, saved: float | None) -> str:
    """What a rung's successor was measured to do, beside the part of the expected time that it ``saved``."""
    change = after.seconds / before.seconds - 1
    times = f"{time_text(after.seconds)} after {time_text(before.seconds)}"
    if abs(change) < 0.005:
        return f"{name} is as fast: {times}."
    more = "" if saved is None else _beside_the_model(-change, saved)
    return f"{name} takes {abs(change):.0%} {'less' if change < 0 else 'more'} time: {times}.{more}"


def _beside_the_model(measured: float, saved: float) -> str:
    """Where a rung saves another part of the time than the model expects."""
    if measured > NOTABLE and saved < NOTABLE / 5:
        return " The model, which expects the same time of both, does not see why."
    if measured - saved > APART:
        return " That is more than the model expects: it does not see all that was lost."
    if saved - measured > APART:
        return " That is less than the model expects: it does not see all that is lost."
    return ""


def unexplained(e: Explanation, time: Time) -> str:
    """A sentence where the measured time is far from the expected one; empty where it is near."""
    ratio = time.seconds / e.bound.total_s if e.bound.total_s else 1.0
    if ratio < SHORTER:
        return f"The measured time is {ratio:.3g} times the expected one: less is waited for than the model supposes."
    if ratio < UNEXPLAINED:
        return ""
    return (
        f"The measured time is {ratio:.3g} times the expected one: something that the model does not know holds "
        "it back too."
    )


def named(of: Bottleneck, leaves: str) -> str:
    """A bottleneck's name, and what the ladder says of it where it speaks of the same."""
    return of.name + leaves.removeprefix(of.short) if leaves.startswith(of.short) else of.name
