"""Child processes that answer, one question each at a time: one that takes too long is ended, and another started."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gemmgen.play.answers import failed
from gemmgen.play.worker import WARM

SECONDS = {"texts": 5.0, "pictures": 5.0, "difference": 5.0, "advised": 20.0, "simulated": 20.0, "compiled": 60.0}
"""Processor time that a question of each kind may take: a busy machine is not a costly spec."""
PATIENCE = 8
"""Seconds of the clock for each second of processor time."""
START_S = 60.0
"""How long a process may take to start, which is no question's time."""
QUICK = ("texts", "pictures", "difference")


@dataclass
class Child:
    """A running worker, and the thread that reads its answers."""

    process: subprocess.Popen[str]
    answers: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)

    @classmethod
    def start(cls) -> Child:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_VISIBLE")}
        process = subprocess.Popen(
            [sys.executable, "-m", "gemmgen.play.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            env={**kept, "COLUMNS": "100", "CUDA_VISIBLE_DEVICES": ""},
        )
        child = cls(process)
        threading.Thread(target=child._read, daemon=True).start()
        with contextlib.suppress(queue.Empty):
            child.answers.get(timeout=START_S)  # it says that it is ready
        return child

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer; None where it took more than ``seconds`` of processor time, or the process died."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({**question, "seconds": seconds}) + "\n")
            self.process.stdin.flush()
            line = self.answers.get(timeout=seconds * PATIENCE)
        except (OSError, ValueError, queue.Empty):
            return None
        found = json.loads(line) if line else None
        return found if isinstance(found, dict) else None

    def end(self) -> None:
        """End it at once, and wait until it is gone."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was left to be written to it
                    stream.close()


class Pool:
    """``quick`` processes for texts, and ``slow`` ones for compilers and the simulator, so that neither waits for the
    other. A context manager: its processes end with it."""

    def __init__(self, quick: int = 2, slow: int = 1, seconds: Mapping[str, float] = SECONDS) -> None:
        self._seconds = seconds
        self._free: dict[bool, queue.Queue[Child | None]] = {True: queue.Queue(), False: queue.Queue()}
        self._all: set[int] = set()
        self._lock = threading.Lock()
        self._children: dict[int, Child] = {}
        for kind, count in ((True, quick), (False, slow)):
            for _ in range(count):
                self._free[kind].put(None)  # started when it is first needed

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question, or the reason for none. Waits for a free process; may be called from any thread."""
        kind = str(question.get("kind"))
        free, seconds = self._free[kind in QUICK], self._seconds.get(kind, 5.0)
        child = free.get()
        if child is not None and child.process.poll() is not None:
            self._ended(child)
            child = None
        child, answer = child or self._started(), None
        try:
            answer = child.ask(question, seconds)
        finally:
            if answer is None:
                self._ended(child)
            free.put(child if answer is not None else None)
        return answer or failed(f"no answer within {seconds:g} s, or too much memory: this spec costs too much here")

    def _started(self) -> Child:
        child = Child.start()
        with self._lock:
            self._children[child.process.pid] = child
        return child

    def _ended(self, child: Child) -> None:
        with self._lock:
            self._children.pop(child.process.pid, None)
        child.end()

    @property
    def running(self) -> tuple[int, ...]:
        """Process ids."""
        with self._lock:
            return tuple(self._children)

    def warm(self) -> None:
        """Have one quick process ready before the first edit."""
        self.ask(WARM)

    def close(self) -> None:
        with self._lock:
            children = list(self._children.values())
            self._children.clear()
        for child in children:
            child.end()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
