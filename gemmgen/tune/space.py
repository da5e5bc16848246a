"""What a tuner chooses from: specs, from ``tune`` lines, from options, or by default for a shape."""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import SpecError
from gemmgen.spec.architecture import capability, needs
from gemmgen.spec.model import Spec
from gemmgen.spec.replace import tried
from gemmgen.spec.tuning import Choice, settled_choices, shown_value, with_choice
from gemmgen.tune.estimate import WORST, Estimate, estimate
from gemmgen.tune.features import own_shape
from gemmgen.tune.shapes import Align, Shape

if TYPE_CHECKING:
    from gemmgen.target import Gpu

Choices = Mapping[str, Iterable[Any]]
Chosen = tuple[tuple[str, Any], ...]
MOST = 4096
"""Combinations that are looked at: the checks and the model take some milliseconds for each."""


@dataclass(frozen=True)
class Candidate:
    """A spec to try. ``values`` are what was chosen, by setting; ``key`` is the same for specs that are the same
    kernel, whatever they are called."""

    spec: Spec
    values: tuple[tuple[str, Any], ...]
    key: str

    @property
    def label(self) -> str:
        """What tells it apart from the others: "block 128x128x8, stages 2"."""
        return ", ".join(f"{name} {shown_value(value)}" for name, value in self.values) or self.spec.name


@dataclass(frozen=True)
class Pruned:
    """A candidate, or a combination that is no spec, that is not compiled: by "checks" or by the "model"."""

    by: str
    why: str
    label: str


@dataclass(frozen=True)
class Space:
    """Legal candidates, each kernel once. ``combinations`` were looked at, those that broke a rule are ``illegal``;
    ``possible`` are all that the choices make, where those are too many to be looked at."""

    candidates: tuple[Candidate, ...]
    combinations: int
    illegal: tuple[Pruned, ...] = ()
    possible: int = 0


@dataclass(frozen=True)
class Ranked:
    """Candidates by modelled time, the fastest first, and what the model leaves out."""

    candidates: tuple[Candidate, ...]
    seconds: tuple[float, ...]
    hopeless: tuple[Pruned, ...] = field(default=())


def key_of(spec: Spec) -> str:
    """A name for the kernel that a spec makes: its text, without its name, comment and choices."""
    return hashlib.sha256(plain(spec).to_text(comment=False).split("\n", 1)[1].encode()).hexdigest()[:20]


def plain(spec: Spec) -> Spec:
    """The spec without its ``tune`` lines."""
    return spec.replace(tune=()) if spec.tune else spec


def space(specs: Sequence[Spec], choices: Choices | None = None) -> Space:
    """Every combination of each spec's ``tune`` lines and of ``choices``, which take precedence; of more than ``MOST``
    as many as that, drawn at random.

    Raises SpecError where a choice is none of the language's, whatever it is combined with.
    """
    given = settled_choices({} if choices is None else {n: tuple(v) for n, v in choices.items()})
    found: dict[str, Candidate] = {}
    illegal: list[Pruned] = []
    grids = [(plain(spec), _choices(spec, given)) for spec in specs]
    possible = sum(_count(own) for _, own in grids)
    for bare, chosen in _combinations(grids, possible):
        made = _made(bare, chosen)
        if isinstance(made, Pruned):
            illegal.append(made)
        else:
            found.setdefault(made.key, made)
    return Space(tuple(found.values()), min(possible, MOST), tuple(illegal), possible)


def _count(own: Sequence[Choice]) -> int:
    return prod(len(values) for _, values in own)


def _combinations(grids: Sequence[tuple[Spec, Sequence[Choice]]], possible: int) -> Iterator[tuple[Spec, Chosen]]:
    """Every combination of each spec's choices, the last choice varying fastest; where there are too many, as many as
    are looked at, drawn at random and the same ones every time, in the same order."""
    if possible <= MOST:
        for bare, own in grids:
            yield from ((bare, c) for c in itertools.product(*([(n, v) for v in values] for n, values in own)))
        return
    ends = list(itertools.accumulate(_count(own) for _, own in grids))
    for number in _drawn(possible):
        grid = bisect_right(ends, number)
        bare, own = grids[grid]
        yield bare, _numbered(own, number - (ends[grid - 1] if grid else 0))


def _drawn(possible: int) -> list[int]:
    """``MOST`` numbers below ``possible``, rising."""
    random, numbers = Random(0), set[int]()
    while len(numbers) < MOST:
        numbers.add(random.randrange(possible))
    return sorted(numbers)


def _numbered(own: Sequence[Choice], number: int) -> Chosen:
    """The combination of that number, from 0."""
    chosen: list[tuple[str, Any]] = []
    for name, values in reversed(own):
        number, digit = divmod(number, len(values))
        chosen.append((name, values[digit]))
    return tuple(reversed(chosen))


def _choices(spec: Spec, given: Sequence[Choice]) -> tuple[Choice, ...]:
    merged = dict(spec.tune) | dict(given)
    # Checked as the language checks a spec's own lines, so that a mistake is an error and not an empty space.
    return spec.replace(tune=tuple(merged.items())).tune if given else spec.tune


def _made(spec: Spec, chosen: Sequence[tuple[str, Any]]) -> Candidate | Pruned:
    label = ", ".join(f"{name} {shown_value(value)}" for name, value in chosen)
    try:
        made = tried(spec, **with_choice(spec, chosen)) if chosen else spec
    except SpecError as error:
        return Pruned("checks", error.message, label)
    if problem := next(iter(_too_large(made)), None):
        return Pruned("checks", problem, label)
    return Candidate(made, tuple(chosen), key_of(made))


def _too_large(spec: Spec) -> Iterator[str]:
    from gemmgen.tile import check_resources

    yield from (problem.message for problem in check_resources(spec, hints=False))


def ranked(space: Space, shape: Shape, gpu: Gpu, align: Align | None = None) -> Ranked:
    """The candidates in the order in which the model would try them."""
    kept: list[tuple[float, int, Candidate]] = []
    hopeless: list[Pruned] = []
    for i, candidate in enumerate(space.candidates):
        found = refused(candidate.spec, gpu) or estimate(candidate.spec, own_shape(candidate.spec, shape), gpu, align)
        if found.hopeless:
            hopeless.append(Pruned("model", found.hopeless, candidate.label))
        else:
            kept.append((found.seconds, i, candidate))
    kept.sort(key=lambda row: row[:2])
    limit = WORST * kept[0][0] if kept else 0.0
    for seconds, _, candidate in kept:
        if seconds > limit:
            why = f"modelled more than {WORST:g} times slower than the best"
            hopeless.append(Pruned("model", why, candidate.label))
    kept = [row for row in kept if row[0] <= limit]
    return Ranked(tuple(c for _, _, c in kept), tuple(s for s, _, _ in kept), tuple(hopeless))


def refused(spec: Spec, gpu: Gpu) -> Estimate | None:
    """Settings that the GPU's architecture does not have."""
    there = capability(gpu.arch)
    for name, least in needs(spec):
        if there is not None and there < least:
            return Estimate(float("inf"), f"{name} needs sm_{least}, and the GPU is {gpu.arch}")
    return None


def reasons(pruned: Iterable[Pruned]) -> list[tuple[str, str, int]]:
    """(by, why, how many), the most frequent first; figures in a reason do not make it another."""
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for p in pruned:
        kind = (p.by, "".join("#" if c.isdigit() else c for c in p.why).replace("##", "#").replace("##", "#"))
        counts[kind] += 1
        examples.setdefault(kind, p.why)
    return [(kind[0], examples[kind], count) for kind, count in counts.most_common()]
