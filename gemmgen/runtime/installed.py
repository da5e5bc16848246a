"""Finds NVIDIA's libraries and tools on disk without importing anything of CUDA."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

_NVRTC = {
    "linux": ("nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"),
    "win32": ("nvidia/cu13/bin/x86_64/nvrtc64_130_0.dll", "nvidia/cuda_nvrtc/bin/nvrtc64_120_0.dll"),
}


@functools.cache
def nvrtc_identity() -> str | None:
    """Which NVRTC will be loaded, as text for a cache key: the installed wheel's version and the library's size.

    None where no wheel is installed: then the library comes from a place that only the loader knows.
    """
    for folder in map(Path, sys.path):
        for relative in _NVRTC.get(sys.platform, ()):
            try:
                size = (folder / relative).stat().st_size
            except OSError:
                continue
            versions = sorted(p.name for p in folder.glob("nvidia_cuda_nvrtc*.dist-info"))
            return f"{relative} {size} {' '.join(versions)}"
    return None


def find_tool(name: str) -> Path | None:
    """A program of the CUDA toolkit: from a wheel, the PATH, or CUDA_HOME / CUDA_PATH."""
    import shutil

    executable = f"{name}.exe" if sys.platform == "win32" else name
    homes = [Path(os.environ[v]) / "bin" for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    wheels = [Path(p) / "nvidia" / "cu13" / "bin" for p in sys.path if p]
    for folder in wheels:
        if (folder / executable).is_file():
            return folder / executable
    if found := shutil.which(name):
        return Path(found)
    return next((h / executable for h in [*homes, Path("/usr/local/cuda/bin")] if (h / executable).is_file()), None)


def tool_identity(name: str) -> str | None:
    """Which program ``find_tool`` finds, as text for a cache key; None where it finds none."""
    try:
        found = find_tool(name)
        status = None if found is None else found.stat()
    except OSError:
        return None
    return None if status is None else f"{found} {status.st_size} {status.st_mtime_ns}"


def python_path() -> str:
    """The PYTHONPATH of a child: this gemmgen first, also where it was found by other means than the environment."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(dict.fromkeys([here, *filter(None, sys.path)]))
