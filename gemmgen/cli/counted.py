"""Launches products once each, for a profiler that watches the process: ``python -m gemmgen.cli.counted JOBS.json``.

The file is a list of {"spec": text, "size": [m, n, k], "beta": number}. Prints, as JSON, how many kernels each
launched.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> int:
    """Launch every job of the file that the one argument names."""
    jobs = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    print(json.dumps([launched(job) for job in jobs]))
    return 0


def launched(job: dict[str, Any]) -> int:
    """Run one product of zeros on the GPU; the number of its kernels."""
    import gemmgen
    from gemmgen.api.explaining import launches
    from gemmgen.runtime.device import required
    from gemmgen.runtime.driver import call
    from gemmgen.runtime.memory import DeviceArray

    spec = gemmgen.parse(job["spec"])
    m, n, k = job["size"]
    kernel = gemmgen.compile(spec, "cuda")
    shapes = ((m, k), (k, n), (m, n))
    a, b, c = arrays = [
        DeviceArray.empty(shape, matrix.dtype.numpy, required().ordinal, order=matrix.order)
        for shape, matrix in zip(shapes, spec.matrices, strict=True)
    ]
    kernel(a, b, c, 1.0, job["beta"])
    call("cuCtxSynchronize")
    for array in arrays:
        array.free()
    return launches(spec, (m, n, k), job["beta"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
