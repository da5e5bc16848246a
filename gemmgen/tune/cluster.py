"""Tuning many shapes on a Ray cluster: one actor per GPU, all of which take shapes from the same list.

Ray is not needed for anything else; without it the processes of one machine do the same work (``gemmgen.tune.share``).
What an actor measures is sent back and kept in one file here, so that a node that dies loses what it was measuring.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from gemmgen.diagnostics import GemmgenError
from gemmgen.tune.records import Record, Records
from gemmgen.tune.share import Outcome, Task, tune_on

TRIES = 3
"""How often a shape is handed out again after a node died with it."""


class Tuner:
    """What an actor does: tunes one task after another on its GPU, with records of its own that it sends back."""

    def __init__(self, backend: Any = None) -> None:
        self._backend = backend

    def run(self, task: str, known: Sequence[Record]) -> tuple[dict[str, Any], list[Record]]:
        import tempfile

        wanted = Task.from_json(task)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "records.sqlite"
            with Records(path) as book:
                for record in known:
                    book.put(record)
            outcome = tune_on(wanted, 0, path, self._backend)
            with Records(path, write=False) as book:
                return asdict(outcome), book.find(shape=wanted.shape)


def tune_on_ray(
    tasks: Sequence[Task],
    address: str,
    path: str | os.PathLike[str],
    progress: Callable[[str], None] = lambda text: None,
) -> list[Outcome]:
    """Tune every task on the cluster at ``address``, one actor per GPU. Raises GemmgenError where Ray is missing."""
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise GemmgenError(f"--ray needs Ray ({error}); pip install 'gemmgen[ray]', or leave --ray out") from error
    ray.init(address=address, ignore_reinit_error=True)
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if not gpus:
        raise GemmgenError(f"the Ray cluster at {address} has no GPU; kernels are timed on GPUs")
    actor = ray.remote(num_gpus=1)(Tuner)
    with Records(path) as book:
        return _shared(ray, [lambda: actor.remote()] * gpus, tasks, book, progress)


def _shared(
    ray: Any, makers: Sequence[Callable[[], Any]], tasks: Sequence[Task], book: Records, progress: Callable[[str], None]
) -> list[Outcome]:
    """Hand tasks to actors as they get free; one that is lost with its actor is handed out again."""
    waiting, tries = deque(range(len(tasks))), dict.fromkeys(range(len(tasks)), 0)
    found: dict[int, Outcome] = {}
    free = [(make, make()) for make in makers]
    running: dict[Any, tuple[int, Callable[[], Any], Any]] = {}
    while waiting or running:
        while waiting and free:
            at, (make, actor) = waiting.popleft(), free.pop()
            known = book.find(shape=tasks[at].shape)
            running[actor.run.remote(tasks[at].to_json(), known)] = (at, make, actor)
        done, _ = ray.wait(list(running), num_returns=1)
        for future in done:
            at, make, actor = running.pop(future)
            try:
                outcome, records = ray.get(future)
            except Exception as error:  # of Ray's own types: the node, or its process, is gone
                tries[at] += 1
                actor = make()
                if tries[at] < TRIES:
                    waiting.append(at)
                else:
                    found[at] = Outcome(tasks[at].shape, None, None, 0, 0, f"{type(error).__name__}: {error}"[:200])
            else:
                for record in records:
                    book.put(record)
                found[at] = Outcome(**{**outcome, "shape": tuple(outcome["shape"])})
                progress(f"{len(found)} of {len(tasks)} shapes tuned")
            free.append((make, actor))
    return [found[i] for i in range(len(tasks))]
