"""CUTLASS as a baseline: a float32 SGEMM of its templates, compiled with nvcc from an installed copy of its headers.

The headers come from a checkout (``CUTLASS_PATH``) or from the package nvidia-cutlass (the extra ``cutlass``). What is
compiled is kept beside the compiled kernels, by the text, the headers' version and the architecture.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.runtime.baseline import BaselineError
from gemmgen.runtime.cache import default_directory, distrust, key_of, make_private
from gemmgen.runtime.installed import find_tool

if TYPE_CHECKING:
    from gemmgen.runtime.device import Device
    from gemmgen.runtime.memory import DeviceArray

INSTALL = "pip install 'gemmgen[cutlass]', or name a checkout of CUTLASS in CUTLASS_PATH; nvcc is needed too"
COMPILE_S = 600

_SOURCE = """
#include <cutlass/gemm/device/gemm.h>

using Row = cutlass::layout::RowMajor;
using Gemm = cutlass::gemm::device::Gemm<
    float, Row, float, Row, float, Row, float, cutlass::arch::OpClassSimt, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<{block}>, cutlass::gemm::GemmShape<{warp}>, cutlass::gemm::GemmShape<1, 1, 1>,
    cutlass::epilogue::thread::LinearCombination<float, 1, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, {stages}>;

extern "C" int gemmgen_cutlass(
    int m, int n, int k, float alpha, const float* a, long lda, const float* b, long ldb, float beta, float* c,
    long ldc, cudaStream_t stream)
{{
    Gemm::Arguments arguments({{m, n, k}}, {{a, lda}}, {{b, ldb}}, {{c, ldc}}, {{c, ldc}}, {{alpha, beta}});
    return static_cast<int>(Gemm()(arguments, nullptr, stream));
}}
"""


@dataclass(frozen=True)
class Template:
    """The template's parameters, under CUTLASS's own names; those of gemmgen that say the same are in brackets.

    ThreadblockShape [tile block], WarpShape [tile warp], InstructionShape [one multiply-add], kStages [stages].
    """

    block: tuple[int, int, int]
    warp: tuple[int, int, int]
    stages: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "ThreadblockShape": "x".join(map(str, self.block)),
            "WarpShape": "x".join(map(str, self.warp)),
            "InstructionShape": "1x1x1",
            "kStages": self.stages,
        }

    @property
    def source(self) -> str:
        """The CUDA C++ that instantiates the template."""
        block, warp = (", ".join(map(str, shape)) for shape in (self.block, self.warp))
        return _SOURCE.format(block=block, warp=warp, stages=self.stages)


LARGE = Template((256, 128, 8), (64, 64, 8), 4)
SMALL = Template((128, 128, 8), (32, 64, 8), 4)


def template_for(size: tuple[int, int, int]) -> Template:
    """What cuBLAS itself takes of CUTLASS at sizes like these on an H100: the large tile where C has many of them."""
    return LARGE if min(size[:2]) >= 2048 else SMALL


class Cutlass:
    """float32 products of row-major matrices by one CUTLASS kernel. Raises BaselineError where it cannot be had."""

    name = "cutlass"

    def __init__(self, device: Device, size: tuple[int, int, int]) -> None:
        self.template = template_for(size)
        self.version, library = build(self.template, device.arch)
        self._run = ctypes.CDLL(str(library)).gemmgen_cutlass
        pointer, length = ctypes.c_void_p, ctypes.c_long
        self._run.argtypes = (
            ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_float, pointer, length, pointer, length, ctypes.c_float,
            pointer, length, pointer,
        )  # fmt: skip

    @property
    def description(self) -> str:
        """Which CUTLASS, and its template's parameters."""
        return f"CUTLASS {self.version} SGEMM, " + ", ".join(f"{n} {v}" for n, v in self.template.to_dict().items())

    def enqueue(self, A: DeviceArray, B: DeviceArray, C: DeviceArray, alpha: float, beta: float, stream: int) -> None:
        """C = alpha * (A @ B) + beta * C on a stream; packed matrices in row order."""
        (m, k), n = A.shape, B.shape[1]
        status = self._run(
            m, n, k, alpha, A.address, A.strides[0], B.address, B.strides[0], beta, C.address, C.strides[0], stream
        )
        if status != 0:
            raise BaselineError(f"CUTLASS failed at {m}x{n}x{k} with status {status}")

    def close(self) -> None:
        """Nothing is held but the library, which stays loaded."""


def include_folder() -> Path:
    """Where CUTLASS's headers lie. Raises BaselineError with what to install."""
    given = os.environ.get("CUTLASS_PATH")
    places = [Path(given) / "include"] if given else []
    found = find_spec("cutlass_library")
    if found is not None and found.origin is not None:
        places.append(Path(found.origin).parent / "source" / "include")
    for place in places:
        if (place / "cutlass" / "gemm" / "device" / "gemm.h").is_file():
            return place
    looked = f" (looked in {', '.join(map(str, places))})" if places else ""
    raise BaselineError(f"the CUTLASS baseline needs CUTLASS{looked}: {INSTALL}")


def headers_version(include: Path) -> str:
    """The version that the headers give, as 4.2.0."""
    text = (include / "cutlass" / "version.h").read_text(encoding="utf-8", errors="replace")
    parts = (re.search(rf"#define CUTLASS_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH"))
    return ".".join(found[1] for found in parts if found)


def build(template: Template, arch: str) -> tuple[str, Path]:
    """(version of CUTLASS, the shared library of one kernel), compiled where it is not in the cache."""
    include = include_folder()
    nvcc = find_tool("nvcc")
    if nvcc is None:
        raise BaselineError(f"the CUTLASS baseline needs nvcc, of a CUDA toolkit on the PATH: {INSTALL}")
    version = headers_version(include)
    folder = default_directory()
    if why := distrust(folder):
        raise BaselineError(f"the CUTLASS baseline is compiled into the cache: {why}")
    library = folder / f"cutlass-{key_of(template.source, version, arch)[:24]}.so"
    if not library.is_file():
        _compile(nvcc, include, template.source, arch, library)
    return version, library


def _compile(nvcc: Path, include: Path, source: str, arch: str, library: Path) -> None:
    make_private(library.parent)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        text, made = Path(folder) / "gemm.cu", Path(folder) / "gemm.so"
        text.write_text(source, encoding="utf-8")
        command = [
            str(nvcc), "-O3", "-std=c++17", f"-arch={arch}", f"-I{include}", "--expt-relaxed-constexpr", "-shared",
            "-Xcompiler", "-fPIC", "-o", str(made), str(text),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
        except subprocess.TimeoutExpired:
            raise BaselineError(f"nvcc took over {COMPILE_S} s to compile CUTLASS's kernel") from None
        if done.returncode != 0:
            said = done.stderr.strip()[-1500:]
            raise BaselineError(f"nvcc refused CUTLASS's kernel (status {done.returncode}): {said}")
        os.replace(made, library)
