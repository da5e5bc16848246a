"""Running Nsight Compute: a program under it, and the counters of its kernels as CSV text."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gemmgen.diagnostics import LaunchError
from gemmgen.runtime.installed import find_tool

TIMEOUT_S = 900
MISSING = (
    "Nsight Compute (ncu) is not on the PATH and not in CUDA_HOME; it comes with the CUDA toolkit and from "
    "https://developer.nvidia.com/nsight-compute. `gemmgen explain` gives the same counts without measuring"
)
NOT_PERMITTED = (
    "the driver does not let this user read the GPU's counters (ERR_NVGPUCTRPERM): run as root or with CAP_SYS_ADMIN, "
    "or load the driver with NVreg_RestrictProfilingToAdminUsers=0, see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)


def profile(command: Sequence[str], counters: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> tuple[str, str]:
    """Run a program under Nsight Compute: (CSV of its kernels' counters, what the program printed).

    Clocks are left alone. Raises LaunchError where ncu is missing, may not read the counters, or fails.
    """
    tool = required_tool()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "counters.csv"
        options = ["--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
        options += ["--metrics", ",".join(counters)]
        try:
            done = subprocess.run(
                [str(tool), *options, *command], capture_output=True, text=True, encoding="utf-8", errors="replace",
                check=False, timeout=timeout_s,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LaunchError(f"ncu took more than {timeout_s:.0f} s") from None
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    why = failure(done.returncode, text, done.stdout + done.stderr)
    if why:
        raise LaunchError(why)
    return text, done.stdout


def required_tool() -> Path:
    """Where ncu is. Raises LaunchError where it is missing, with what to do."""
    tool = find_tool("ncu")
    if tool is None:
        raise LaunchError(MISSING)
    return tool


def failure(status: int, log: str, printed: str) -> str:
    """Why a run under ncu gave no counters, and what to do; empty where it did."""
    said = log + printed
    if "ERR_NVGPUCTRPERM" in said:
        return NOT_PERMITTED
    if status == 0:
        return ""
    lines = [line for line in said.splitlines() if "==ERROR==" in line or "Error" in line] or said.splitlines()[-3:]
    return f"ncu failed with status {status}: {' '.join(line.strip() for line in lines[-3:])}"
