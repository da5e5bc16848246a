"""Work in a process of its own, which ends itself after so many seconds: a compiler cannot be interrupted."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from gemmgen.diagnostics import CompileError, GemmgenError
from gemmgen.runtime.installed import python_path

WAITED = 3.0
"""Seconds of wall time allowed per second of processor time, at least ``WAITED_LEAST``: the machine may be busy."""
WAITED_LEAST = 60.0

POLLED = 0.1
ENDED = 98
"""The status of a process that has used up its time."""


class OutOfTime(CompileError):
    """The compiler was ended. ``certain``: its processor time was used up; else the machine may have been busy."""

    def __init__(self, message: str, certain: bool = True) -> None:
        super().__init__(message)
        self.certain = certain


def call(module: str, function: str, arguments: Sequence[Any], seconds: float) -> Any:
    """``function`` of ``module`` called in another process. Raises what it raises of gemmgen's errors, OutOfTime where
    it takes longer, CompileError where the process dies."""
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    most = max(WAITED_LEAST, WAITED * seconds)
    job = pickle.dumps((module, function, tuple(arguments), seconds))
    try:
        done = subprocess.run(command, input=job, capture_output=True, env=environment, timeout=most, check=False)
    except subprocess.TimeoutExpired:
        raise OutOfTime(f"over {most:g} s", certain=False) from None
    if done.returncode == ENDED:
        raise OutOfTime(f"over {seconds:g} s of processor time")
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise CompileError(f"the compiler's process ended with status {done.returncode}: {' '.join(why)}")
    fine, value = pickle.loads(done.stdout)
    if not fine:
        raise value
    return value


def serve() -> NoReturn:
    """What the other process does: one job from stdin, its result to stdout."""
    from importlib import import_module

    module, function, arguments, seconds = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_watch, args=(seconds,), daemon=True).start()
    try:
        answer = (True, getattr(import_module(module), function)(*arguments))
    except GemmgenError as error:
        answer = (False, error)
    sys.stdout.buffer.write(pickle.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # without what libraries do at their end


def _watch(seconds: float) -> None:
    """End this process once it has used so much processor time. The compiler lets other threads run."""
    while time.process_time() < seconds:
        time.sleep(POLLED)
    os._exit(ENDED)
