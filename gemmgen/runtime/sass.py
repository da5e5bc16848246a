"""Machine code as text, by nvdisasm. Needs no GPU."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from gemmgen.diagnostics import CompileError
from gemmgen.runtime.installed import find_tool


def disassemble(cubin: bytes, *, lines: bool = False) -> str:
    """The SASS of a cubin; ``lines`` adds source lines where it was compiled with them.

    Raises CompileError where nvdisasm is missing or refuses the cubin.
    """
    tool = find_tool("nvdisasm")
    if tool is None:
        raise CompileError(
            "nvdisasm is not installed; pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit on the PATH"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [str(tool), "-c", *(["-g"] if lines else []), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode != 0:
        raise CompileError(f"nvdisasm failed with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout
