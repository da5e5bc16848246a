"""Several shapes on several GPUs: one process a GPU, which take shapes from a queue in the file of records.

``python -m gemmgen.tune.share JOB RECORDS GPU`` is such a process. One that dies is missed by its signs of life, and
what it had claimed is claimed by another; what it had measured is in the records.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import GemmgenError, TuneError
from gemmgen.tune.records import Records
from gemmgen.tune.tuner import Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gemmgen.tune.shapes import Shape

BEAT_S = 5.0
STALE_S = 30.0
POLL_S = 0.2
MODULE = "gemmgen.tune.share"


@dataclass(frozen=True)
class Task:
    """One shape to tune: ``specs`` as text (None: the default space), and how. ``unordered``: as for ``tune``."""

    shape: Shape
    specs: tuple[str, ...] | None
    choices: dict[str, list[Any]]
    options: Options
    unordered: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        from gemmgen.tune.backend import Care

        found = json.loads(text)
        how: dict[str, Any] = found["options"]
        options = Options(**{**how, **{name: Care(**how[name]) for name in ("screening", "final")}})
        m, n, k = found["shape"]
        specs = found["specs"]
        return cls((m, n, k), None if specs is None else tuple(specs), found["choices"], options, found["unordered"])


@dataclass(frozen=True)
class Outcome:
    """What came of a task: the best spec and its seconds, or an error."""

    shape: Shape
    spec: str | None
    seconds: float | None
    timings: int
    gpu: int
    error: str = ""


def tune_on(task: Task, ordinal: int, path: str | os.PathLike[str], backend: Any = None) -> Outcome:
    """Tune one task on a GPU of this machine; its errors are the outcome's."""
    from gemmgen.api.specs import parse
    from gemmgen.tune.tuning import tune

    try:
        specs: Any = None if task.specs is None else [parse(text) for text in task.specs]
        given = specs[0] if specs and len(specs) == 1 else specs
        found = tune(
            given, *task.shape, choices={name: _values(values) for name, values in task.choices.items()} or None,
            search=task.options.search, timings=task.options.timings, seed=task.options.seed, warm=task.options.warm,
            options=task.options, backend=backend, records=path, unordered=task.unordered,
        )  # fmt: skip
    except GemmgenError as error:
        return Outcome(task.shape, None, None, 0, ordinal, str(error))
    return Outcome(task.shape, found.best.to_text(), found.best_s, found.timings, ordinal)


def _values(values: Sequence[Any]) -> list[Any]:
    return [tuple(v) if isinstance(v, list) else v for v in values]


def tune_many(
    tasks: Sequence[Task],
    gpus: Sequence[int],
    path: str | os.PathLike[str],
    progress: Callable[[str], None] = lambda text: None,
    command: Sequence[str] = (sys.executable, "-m", MODULE),
) -> list[Outcome]:
    """Tune every task, each GPU taking the next as it gets free. The processors are shared among them.

    Raises TuneError where tasks are left that no process would take.
    """
    from gemmgen.runtime.installed import python_path

    job, jobs = uuid.uuid4().hex, max(1, (os.cpu_count() or 1) // len(gpus))
    shared = [replace(task, options=replace(task.options, jobs=jobs)) for task in tasks]
    with Records(path) as records:
        records.offer(job, [task.to_json() for task in shared])
        environment = {**os.environ, "PYTHONPATH": python_path()}
        workers = [
            subprocess.Popen([*command, job, str(Path(path).resolve()), str(gpu)], env=environment) for gpu in gpus
        ]
        try:
            _wait(records, job, workers, progress)
        finally:
            for worker in workers:
                with suppress(OSError):
                    worker.terminate()
                worker.wait()
        rows = records.results(job)
    left = [json.loads(task)["shape"] for task, state, _ in rows if state != "done"]
    if left:
        shown = ", ".join("x".join(map(str, shape)) for shape in left)
        raise TuneError(f"not tuned, since the processes for the GPUs ended: {shown}; what was measured is kept")
    return [_outcome(result) for _, _, result in rows]


def _wait(
    records: Records, job: str, workers: Sequence[subprocess.Popen[bytes]], progress: Callable[[str], None]
) -> None:
    before = -1
    while True:
        states = [state for _, state, _ in records.results(job)]
        done = states.count("done")
        if done != before:
            progress(f"{done} of {len(states)} shapes tuned")
            before = done
        if done == len(states) or all(worker.poll() is not None for worker in workers):
            return
        time.sleep(POLL_S)


def _outcome(text: str | None) -> Outcome:
    found = json.loads(text or "{}")
    return Outcome(**{**found, "shape": tuple(found["shape"])})


def work(job: str, path: str, ordinal: int, run: Callable[[Task], Outcome]) -> int:
    """Take tasks of a job until none is left or stale; how many were done."""
    owner, done = f"{os.getpid()} on GPU {ordinal}", 0
    with Records(path) as records, _beating(job, path, owner):
        while True:
            claimed = records.claim(job, owner, STALE_S)
            if claimed is None:
                if all(state == "done" for _, state, _ in records.results(job)):
                    return done
                time.sleep(POLL_S * 5)  # another process works on the rest; should it die, this one takes over
                continue
            place, text = claimed
            outcome = run(Task.from_json(text))
            records.finish(job, place, owner, json.dumps(asdict(outcome)))
            done += 1


@contextmanager
def _beating(job: str, path: str, owner: str) -> Iterator[None]:
    """Signs of life, in a thread with a connection of its own."""
    stop = threading.Event()

    def beat() -> None:
        with Records(path) as records:
            while not stop.wait(BEAT_S):
                records.beat(job, owner)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def main(arguments: Sequence[str]) -> int:
    from gemmgen.tune.gpu import GpuBackend

    job, path, gpu = arguments
    backend = GpuBackend(int(gpu))
    try:
        work(job, path, int(gpu), lambda task: tune_on(task, int(gpu), path, backend))
    finally:
        backend.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
