"""A worker process as seen by the tuner: batches in, times and failures out, whatever happens to the process.

Every answer has a deadline. A worker that misses it is killed with the candidate that it had begun, which has hung; one
that dies takes the candidate that it had begun. The rest of the batch goes to a new worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmgen.diagnostics import LaunchError
from gemmgen.runtime.installed import python_path
from gemmgen.tune.backend import Care, Failed, Kind, Measured
from gemmgen.tune.shapes import Shape

MODULE = "gemmgen.tune.worker"
START_S = 120.0
"""For a worker to import its libraries, make a context, and draw the operands."""


@dataclass(frozen=True)
class Patience:
    """Seconds until a worker's silence means that it hangs: while it checks a candidate, and while it times."""

    check_s: float = 60.0
    turn_s: float = 30.0
    start_s: float = START_S


class _Lost(Exception):
    """The worker hangs ("hang") or has ended ("died")."""

    def __init__(self, kind: Kind, why: str) -> None:
        self.kind: Kind = kind
        self.why = why
        super().__init__(why)


class WorkerProcess:
    """Runs batches in a process of its own, started when it is first needed. Use from one thread."""

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        command: Sequence[str] = (sys.executable, "-m", MODULE),
    ) -> None:
        self.patience = patience or Patience()
        self._command = list(command)
        self._environment = {**os.environ, **(environment or {}), "PYTHONPATH": python_path()}
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._shape: tuple[Any, ...] | None = None

    def measure(
        self, specs: Sequence[str], shape: Shape, care: Care, *, warm: bool, layout: str = "nn"
    ) -> list[Measured | Failed]:
        """Times or failures of specs, in their order, of operands that lie as ``layout`` says.

        Raises LaunchError where no worker can be had.
        """
        answers: dict[int, Measured | Failed] = {}
        while rest := [i for i in range(len(specs)) if i not in answers]:
            self._ready(shape, warm, layout)
            answers.update(self._batch(rest, [specs[i] for i in rest], care))
        return [answers[i] for i in range(len(specs))]

    def close(self) -> None:
        """End the worker, at once."""
        process, self._process, self._shape = self._process, None, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    # --- One batch ---------------------------------------------------------------------------------------------------

    def _batch(self, places: list[int], specs: list[str], care: Care) -> dict[int, Measured | Failed]:
        found: dict[int, Measured | Failed] = {}
        begun = 0
        waiting = self.patience.check_s
        try:
            self._send({"do": "batch", "specs": specs, **vars(care)})
            while True:
                answer = self._next(waiting)
                match answer["is"]:
                    case "begin":
                        begun = int(answer["at"])
                        waiting = self.patience.check_s if answer["phase"] == "check" else self.patience.turn_s
                    case "failed":
                        begun = int(answer["at"])
                        found[places[begun]] = Failed(answer["kind"], str(answer["why"]))
                    case "done":
                        for at, samples in answer["samples"].items():
                            found.setdefault(places[int(at)], Measured(tuple(samples)))
                        return found
                    case _:
                        raise _Lost("died", str(answer.get("why", answer)))
        except _Lost as lost:
            self.close()
            # Where a failure was reported last, that was the end of the process; else it is what had begun.
            found.setdefault(places[begun], Failed(lost.kind, lost.why))
            return found

    # --- The process -------------------------------------------------------------------------------------------------

    def _ready(self, shape: Shape, warm: bool, layout: str) -> None:
        """A worker with the operands of a shape."""
        wanted = (*shape, warm, layout)
        if self._process is not None and self._shape == wanted:
            return
        if self._process is None:
            self._start()
        try:
            self._send({"do": "shape", "size": list(shape), "warm": warm, "seed": 0, "layout": layout})
            answer = self._next(self.patience.start_s)
        except _Lost as lost:
            self.close()
            raise LaunchError(f"the process that runs candidates does not start: {lost.why}") from None
        if answer["is"] != "ready":
            self.close()
            size, why = "x".join(map(str, shape)), answer.get("why", answer)
            raise LaunchError(f"the operands of {size} cannot be made: {why}")
        self._shape = wanted

    def _start(self) -> None:
        self._answers = queue.Queue()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
            env=self._environment, start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=_read, args=(self._process, self._answers), daemon=True).start()

    def _send(self, command: Mapping[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise _Lost("died", self._ended()) from None

    def _next(self, seconds: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise _Lost("hang", f"no answer in {seconds:g} s; its process was killed") from None
        if answer is None:
            raise _Lost("died", self._ended())
        return answer

    def _ended(self) -> str:
        process = self._process
        status = None if process is None else process.wait()
        if status is not None and status < 0:
            with contextlib.suppress(ValueError):
                return f"its process was ended by {signal.Signals(-status).name}"
        return f"its process ended with status {status}"


def _read(process: subprocess.Popen[str], answers: queue.Queue[dict[str, Any] | None]) -> None:
    """Passes a worker's answers on; None at its end."""
    assert process.stdout is not None
    with contextlib.suppress(OSError, ValueError):
        for line in process.stdout:
            answers.put(json.loads(line))
    answers.put(None)
