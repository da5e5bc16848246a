"""compute-sanitizer finds no illegal access and no race in any kernel of the ladder, nor in a winner that ships."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sanitize
from gpu_support import LADDER

from gemmgen.runtime.device import required
from gemmgen.runtime.installed import find_tool

HERE = Path(__file__).resolve().parent


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_compute_sanitizer_is_clean(tool: str) -> None:
    sanitizer = find_tool("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not installed")
    # Only what kernels do: cuda.core probes for functions that a driver may not have.
    flags = ["--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9"]
    command = [str(sanitizer), *flags, sys.executable, str(HERE / "sanitize.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if "Device not supported" in said:
        pytest.skip("compute-sanitizer does not support this machine")
    assert done.returncode == 0, said[-4000:]
    assert said.count("PASS:") == len(sanitize.SIZES) * len(sanitize.specs(required().arch)) > 6 * len(LADDER)
