"""The process that runs candidates: whatever it does, each candidate gets an answer, and the right one is blamed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemmgen.diagnostics import LaunchError
from gemmgen.tune.backend import Care, Failed, Measured
from gemmgen.tune.process import Patience, WorkerProcess

SHAPE = (64, 64, 64)
CARE = Care(rounds=3, sample_s=0.001, warm_up_s=0.0)

WORKER = '''
"""A worker that needs no GPU: a spec's text says what its kernel does."""
import json, os, signal, sys, time
sys.path.insert(0, sys.argv[1])
log = open(sys.argv[2], "a")

def answer(what, /, **facts):
    print(json.dumps({"is": what, **facts}), flush=True)

for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "shape":
        if command["size"][0] == 13:
            answer("error", why="too little memory")
        answer("ready")
        continue
    right = []
    for at, text in enumerate(command["specs"]):
        log.write(f"{os.getpid()} {text}\\n"); log.flush()
        answer("begin", at=at, phase="check")
        if text == "wrong":
            answer("failed", at=at, kind="wrong", why="C[0, 0]")
        elif text == "hang":
            time.sleep(600)
        elif text == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        elif text == "illegal":
            answer("failed", at=at, kind="launch", why="CUDA_ERROR_ILLEGAL_ADDRESS")
            sys.exit(3)
        else:
            right.append(at)
    for at in right:
        answer("begin", at=at, phase="time")
        if command["specs"][at] == "hang later":
            time.sleep(600)
    answer("done", samples={str(at): [1e-3] * command["rounds"] for at in right})
'''


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    script, log = tmp_path / "worker.py", tmp_path / "log"
    script.write_text(WORKER)
    log.touch()
    command = (sys.executable, str(script), str(tmp_path), str(log))
    found = WorkerProcess(patience=Patience(4.0, 4.0, 120.0), command=command)
    yield found
    found.close()


def kinds(worker: WorkerProcess, *specs: str) -> list[str]:
    found = worker.measure(specs, SHAPE, CARE, warm=False)
    assert all(len(f.samples) == 3 for f in found if isinstance(f, Measured))
    return [f.kind if isinstance(f, Failed) else "ok" for f in found]


def starts(worker: WorkerProcess) -> list[tuple[str, str]]:
    """(process, spec) in the order of the checks."""
    rows = Path(worker._command[-1]).read_text().splitlines()
    return [(row.split(" ", 1)[0], row.split(" ", 1)[1]) for row in rows]


def test_one_process_serves_many_batches(worker: WorkerProcess) -> None:
    assert kinds(worker, "a", "wrong", "b") == ["ok", "wrong", "ok"]
    assert kinds(worker, "c") == ["ok"]
    assert len({process for process, _ in starts(worker)}) == 1


@pytest.mark.parametrize("late", [False, True])
def test_a_hang_is_killed_at_its_deadline_and_the_others_are_timed(worker: WorkerProcess, late: bool) -> None:
    assert kinds(worker, "a", "hang later" if late else "hang", "b") == ["ok", "hang", "ok"]
    processes = list(dict.fromkeys(process for process, _ in starts(worker)))
    assert len(processes) == 2
    assert not Path(f"/proc/{processes[0]}").exists()


def test_a_process_that_dies_takes_one_candidate_with_it(worker: WorkerProcess) -> None:
    found = worker.measure(["a", "crash", "b", "wrong"], SHAPE, CARE, warm=False)
    assert [f.kind if isinstance(f, Failed) else "ok" for f in found] == ["ok", "died", "ok", "wrong"]
    assert isinstance(found[1], Failed) and "SIGKILL" in found[1].why


def test_a_lost_context_is_the_fault_of_the_one_that_lost_it(worker: WorkerProcess) -> None:
    found = worker.measure(["wrong", "a", "illegal", "b"], SHAPE, CARE, warm=False)
    assert [f.kind if isinstance(f, Failed) else "ok" for f in found] == ["wrong", "ok", "launch", "ok"]
    assert isinstance(found[2], Failed) and "ILLEGAL_ADDRESS" in found[2].why


def test_everything_at_once(worker: WorkerProcess) -> None:
    specs = ["hang", "crash", "illegal", "wrong", "a", "crash", "hang later", "b"]
    assert kinds(worker, *specs) == ["hang", "died", "launch", "wrong", "ok", "died", "hang", "ok"]


def test_no_worker_is_an_error_of_its_own(worker: WorkerProcess, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="operands of 13x1x1 cannot be made: too little memory"):
        worker.measure(["a"], (13, 1, 1), CARE, warm=False)
    for code in ("import time; time.sleep(60)", "raise SystemExit(4)"):
        dead = WorkerProcess(patience=Patience(1.0, 1.0, 1.0), command=(sys.executable, "-c", code))
        with pytest.raises(LaunchError, match="does not start"):
            dead.measure(["a"], SHAPE, CARE, warm=False)
        dead.close()


def test_the_worker_itself_says_that_there_is_no_gpu() -> None:
    from gemmgen.runtime.device import current

    if current() is not None:
        pytest.skip("there is a GPU")
    real = WorkerProcess(patience=Patience(60.0, 60.0, 60.0))
    with pytest.raises(LaunchError, match="no GPU can be used here"):
        real.measure(["a"], SHAPE, CARE, warm=False)
    real.close()


def test_a_worker_leaves_with_its_parent(worker: WorkerProcess) -> None:
    kinds(worker, "a")
    process = int(starts(worker)[0][0])
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
