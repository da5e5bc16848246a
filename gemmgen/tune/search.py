"""In which order candidates are timed. A search sees positions in the model's order and the times it asked for.

``measure(positions, anchor, final)`` times a batch and returns seconds by position; what failed is absent. A timing is
one candidate in one batch, and a search keeps within its budget of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gemmgen.diagnostics import ArgumentError, GemmgenError

Name = Literal["guided", "exhaustive", "random", "optuna"]
NAMES: tuple[Name, ...] = ("guided", "exhaustive", "random", "optuna")

Anchor = tuple[int, float]
"""The fastest candidate so far and its seconds. It is timed in each batch too: what it takes then is how much faster or
slower the machine has become, and the batch's times are corrected by that."""
Measure = Callable[[Sequence[int], Anchor | None, bool], Mapping[int, float]]

BATCH = 8
FINALISTS = 5


@dataclass(frozen=True)
class Problem:
    """What a search works on: for each candidate, in the model's order, its values by setting and modelled seconds."""

    values: tuple[Mapping[str, Any], ...]
    modelled: tuple[float, ...]
    budget: int
    seed: int

    def __len__(self) -> int:
        return len(self.values)


def run(name: Name, problem: Problem, measure: Measure) -> None:
    """Search, and end with the careful comparison of the fastest found. Raises ArgumentError for an unknown search."""
    book = Book(problem, measure)
    match name:
        case "guided":
            guided(book)
        case "exhaustive":
            exhaustive(book)
        case "random":
            at_random(book)
        case "optuna":
            by_optuna(book)
        case _:
            raise ArgumentError(f"search is {name!r}; it is one of {', '.join(NAMES)}")
    book.final()


class Book:
    """What was measured so far, and what is left of the budget."""

    def __init__(self, problem: Problem, measure: Measure) -> None:
        self.problem = problem
        self.seconds: dict[int, float] = {}
        self.tried: set[int] = set()
        self._measure = measure
        self._left = problem.budget
        reserve = FINALISTS if problem.budget >= 4 * FINALISTS else min(2, problem.budget - 1)
        self.reserve = max(0, reserve)

    @property
    def left(self) -> int:
        """Candidates that may still be timed before the final comparison, the anchors of their batches counted."""
        rest = self._left - self.reserve
        return rest - -(-rest // (BATCH + 1)) if self.tried else rest

    @property
    def fastest(self) -> int | None:
        return min(self.seconds, key=lambda i: (self.seconds[i], i), default=None)

    def time(self, positions: Sequence[int]) -> None:
        """Time candidates that were not tried yet, as far as the budget goes."""
        fresh = [i for i in dict.fromkeys(positions) if i not in self.tried]
        anchor = self.fastest
        room = self._left - self.reserve - (anchor is not None)
        fresh = fresh[: max(0, room)]
        if not fresh:
            return
        self._left -= len(fresh) + (anchor is not None)
        self.tried.update(fresh)
        known = None if anchor is None else (anchor, self.seconds[anchor])
        self.seconds.update(self._measure(fresh, known, False))

    def final(self) -> None:
        """The fastest few again, carefully and beside one another."""
        order = sorted(self.seconds, key=lambda i: (self.seconds[i], i))
        finalists = order[: min(FINALISTS, self._left)]
        if finalists:
            self._left -= len(finalists)
            self._measure(finalists, None, True)


def exhaustive(book: Book) -> None:
    """Every candidate, in the model's order, as far as the budget goes."""
    positions = list(range(len(book.problem)))
    for start in range(0, len(positions), BATCH):
        book.time(positions[start : start + BATCH])


def at_random(book: Book) -> None:
    """Candidates in an order drawn by the seed."""
    positions = list(range(len(book.problem)))
    random.Random(book.problem.seed).shuffle(positions)
    for start in range(0, len(positions), BATCH):
        book.time(positions[start : start + BATCH])


def guided(book: Book) -> None:
    """The model's best, some that differ from them, then what the measurements so far speak for.

    The measurements correct the model: each value of each setting gets a factor, fitted to all times so far, and the
    candidates with the smallest product come next. One in four is chosen for what is least known instead.
    """
    from gemmgen.tune.surrogate import Surrogate

    problem = book.problem
    book.time(first_batch(problem, 2 * BATCH))
    surrogate = Surrogate(problem.values, problem.modelled)
    while book.left > 0 and len(book.tried) < len(problem):
        rest = [i for i in range(len(problem)) if i not in book.tried]
        chosen = surrogate.choose(book.seconds, rest, min(BATCH, max(1, book.left)))
        before = len(book.tried)
        book.time(chosen)
        if len(book.tried) == before:
            return


def first_batch(problem: Problem, count: int) -> list[int]:
    """Half from the top of the model's order, half that together show every value of every setting once if they can."""
    chosen = list(range(min(count // 2, len(problem))))
    seen = {pair for i in chosen for pair in problem.values[i].items()}
    rest = [i for i in range(len(problem)) if i not in chosen]
    while len(chosen) < count and rest:
        fresh = [len(set(problem.values[i].items()) - seen) for i in rest]
        best = max(range(len(rest)), key=lambda j: (fresh[j], -j))
        if fresh[best] == 0:  # all values are seen: spread over the model's order
            step = max(1, len(rest) // (count - len(chosen)))
            chosen += rest[::step][: count - len(chosen)]
            break
        i = rest.pop(best)
        seen |= set(problem.values[i].items())
        chosen.append(i)
    return chosen


def by_optuna(book: Book) -> None:
    """Optuna's tree-structured Parzen estimator over the settings' values. Raises GemmgenError where it is missing."""
    try:
        import optuna
    except ImportError as error:
        raise GemmgenError(f"--search optuna needs optuna ({error}); pip install 'gemmgen[tune]'") from error

    problem = book.problem
    places: dict[tuple[tuple[str, str], ...], int] = {}
    for i in reversed(range(len(problem))):
        places[_as_text(problem.values[i])] = i
    names = sorted({name for values in problem.values for name in values})
    options = {name: sorted({str(values.get(name)) for values in problem.values}) for name in names}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=problem.seed, constant_liar=True)
    study = optuna.create_study(sampler=sampler)
    for i in range(min(BATCH, len(problem))):
        study.enqueue_trial({name: str(problem.values[i].get(name)) for name in names})
    for _ in range(50 * max(1, problem.budget)):
        if book.left <= 0 or len(book.tried) >= len(problem):
            break
        asked: list[tuple[Any, int]] = []
        for _ in range(BATCH * 8):
            trial = study.ask()
            chosen = tuple((name, trial.suggest_categorical(name, options[name])) for name in names)
            place = places.get(chosen)
            if place is None or place in book.tried or any(place == p for _, p in asked):
                known = book.seconds.get(place) if place is not None else None
                _tell(study, trial, known)
                continue
            asked.append((trial, place))
            if len(asked) == min(BATCH, book.left):
                break
        if not asked:  # nothing new is proposed: fill up in the model's order
            asked_for = [i for i in range(len(problem)) if i not in book.tried][:BATCH]
            book.time(asked_for)
            continue
        book.time([place for _, place in asked])
        for trial, place in asked:
            _tell(study, trial, book.seconds.get(place))


def _tell(study: Any, trial: Any, seconds: float | None) -> None:
    import optuna

    if seconds is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(trial, seconds)


def _as_text(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in values.items()))
