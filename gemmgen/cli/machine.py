"""What a benchmark ran on: GPU, driver, versions and commit, as they go into its JSON."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gemmgen

PACKAGES = (
    "cuda-core",
    "cuda-bindings",
    "nvidia-cuda-nvrtc",
    "nvmath-python",
    "nvidia-cublas",
    "numpy",
    "torch",
    "cupy-cuda13x",
    "cupy-cuda12x",
)

COMMIT = "GEMMGEN_COMMIT"
"""The environment variable that names the commit where a copy of the checkout runs without its history."""


def machine() -> dict[str, Any]:
    """GPU and driver (None where there is none), versions, and the commit of the checkout that is running."""
    from gemmgen.runtime.device import current

    device = current()
    return {
        "gpu": device and device.name,
        "arch": device and device.arch,
        "driver": device and driver_version(),
        "driver_cuda": device and ".".join(map(str, device.driver)),
        "versions": {"gemmgen": gemmgen.__version__, "python": platform.python_version(), **installed()},
        "commit": commit(),
    }


def installed() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def driver_version() -> str | None:
    """The release of the NVIDIA driver, as 580.95.05; None where nothing tells."""
    module = Path("/proc/driver/nvidia/version")
    if module.is_file():
        for word in module.read_text(encoding="utf-8", errors="replace").split():
            if word[0].isdigit() and "." in word:
                return word
    told = answer(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return told.splitlines()[0] if told else None


def commit() -> str | None:
    """The commit of the checkout that gemmgen runs from, with -dirty where files differ; None where nothing tells."""
    if COMMIT in os.environ:
        return os.environ[COMMIT]
    root = Path(gemmgen.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    return answer(["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])


def answer(command: list[str]) -> str | None:
    """What a program prints; None where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
