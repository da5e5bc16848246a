"""Builds the text of kernels with the host's C++ compiler and runs them on NumPy arrays."""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmgen.ir.types import ELEMENT_TYPES

STUB = Path(__file__).with_name("cuda_stub.h")
STUBS = (STUB, *(STUB.with_name(f"{name}_stub.h") for name in ("types", "tma", "cluster", "dependent", "mma")))
MAP = "__grid_constant__ TensorMap"
MAP_BYTES = 128
# Multiply-adds stay two roundings, so that results are those of NumPy bit for bit. What one branch sets and another of
# the same condition reads is set; where it is not, the simulator knows.
FLAGS = [
    *("-std=c++17", "-O0", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing"),
    "-fsanitize=alignment,bounds",
    *("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-sign-compare", "-Wno-unused-parameter"),
    *("-Wno-maybe-uninitialized", "-Wno-psabi"),
]
SIGNATURE = re.compile(
    r'extern "C" __global__ void (?:__cluster_dims__\(1, 1, (?P<cluster>\w+)\) )?__launch_bounds__\([^)]*\)'
    r"\s*(?P<name>\w+)\((?P<parameters>[^)]*)\)\s*\{"
)
# A helper in PTX, of which cuda_stub.h has a version in C++ under the same name.
HELPER = re.compile(r"^__device__ .*\)\n\{\n(?:    .*\n)*\}\n", re.MULTILINE)
MMA = re.compile(r"mma\.sync\.aligned\.\w+\.row\.col\.f32\.(?P<kind>\w+)\.")
# Shared memory that is one array, of which arrays are parts: behind its end are GUARD bytes that nothing may write.
DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) (?P<kind>\w+) dynamicShared\[\];")
DYNAMIC_BYTES = re.compile(r"// (\d+) bytes, more than the \d+ that a kernel may declare")
PARTS = re.compile(r"(__shared__ __align__\(\d+\) (\w+) blockShared)\[(.*)\];")
GUARD = 4096
CTYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "long long": ctypes.c_longlong,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
}
ELEMENTS = {x.c: x for x in ELEMENT_TYPES.values()}


Chosen = Callable[..., set[tuple[Any, ...]]]
"""The fixture ``chosen``: what the tests that run have for parameters."""


class HostFault(Exception):
    """The kernel did what it must not: the line of its text, and what."""


class BuildError(Exception):
    """The compiler refused a text."""


def missing() -> str | None:
    """Why kernels cannot be built here; None if they can."""
    if not sys.platform.startswith("linux"):
        return "the stand-in for CUDA finds shared memory through ELF sections: Linux only"
    if shutil.which("g++") is None:
        return "no g++"
    return None


@dataclass(frozen=True)
class HostModule:
    """Built kernels, by the names that they were given to :func:`build` under."""

    library: ctypes.CDLL
    entries: dict[str, tuple[str, tuple[str, ...]]]

    def run(
        self,
        name: str,
        grid: Sequence[int],
        threads: int,
        args: Sequence[Any],
        *,
        reverse: bool = False,
        arriving: Any = None,
    ) -> None:
        """Runs a kernel; arrays (of the parameter's type, or addresses) are changed in place; tensor maps are 8 numbers
        each, as tma_stub.h has them. Raises HostFault.

        ``reverse``: the threads of a block take turns from the last to the first. ``arriving``: an array that the
        kernel finds as if the one before were still writing it.
        """
        entry, kinds = self.entries[name]
        assert len(args) == len(kinds), f"{name} takes {len(kinds)} arguments"
        values = [_argument(kind, value) for kind, value in zip(kinds, args, strict=True)]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        sizes = (ctypes.c_uint * 3)(*grid, *[1] * (3 - len(grid)))
        message = ctypes.create_string_buffer(256)
        run = getattr(self.library, entry)
        if arriving is not None:
            self.library.still_arriving(ctypes.c_void_p(arriving.ctypes.data), ctypes.c_size_t(arriving.nbytes))
        if run(sizes, threads, pointers, int(reverse), message, ctypes.c_size_t(256)):
            raise HostFault(message.value.decode())


def _argument(kind: str, value: Any) -> Any:
    if kind == MAP:
        room = ctypes.create_string_buffer(2 * MAP_BYTES)
        at = -ctypes.addressof(room) % MAP_BYTES
        made = (ctypes.c_uint64 * (MAP_BYTES // 8)).from_buffer(room, at)
        made[: len(value)] = value
        return made
    if not kind.endswith("*"):
        return CTYPES[kind](value)
    if isinstance(value, np.ndarray):
        assert value.dtype == ELEMENTS[kind.removesuffix("*")].numpy_dtype
        value = value.ctypes.data
    return ctypes.c_void_p(value)


def build(texts: Sequence[tuple[str, str]], folder: Path | None = None) -> HostModule:
    """Compiles kernels, given as (name, text), into one module. A module built before is found in ``folder``."""
    folder = Path(tempfile.mkdtemp(prefix="host_cuda")) if folder is None else folder
    source = '#include "cuda_stub.h"\n'
    entries: dict[str, tuple[str, tuple[str, ...]]] = {}
    for at, (name, text) in enumerate(texts):
        piece, kinds = _unit(at, name, text)
        source += piece
        entries[name] = (f"run_{at}", kinds)
    key = hashlib.sha256("\0".join([source, *(x.read_text() for x in STUBS), *FLAGS]).encode()).hexdigest()[:32]
    library = folder / f"{key}.so"
    if not library.exists():
        _compile(source, library)
    return HostModule(ctypes.CDLL(str(library)), entries)


def _unit(at: int, name: str, text: str) -> tuple[str, tuple[str, ...]]:
    """C++ of one kernel, in a namespace and a section of its own, with a function that runs it."""
    found = SIGNATURE.search(text)
    assert found, f"no kernel in {name}"
    kinds = tuple(p.rsplit(" ", 1)[0].removeprefix("const ") for p in re.split(r",\s*", found["parameters"].strip()))
    body = f"{text[: found.start('name')]}kernel_{at}_entry{text[found.end('name') :]}"
    body, parts = PARTS.subn(rf"\1[(\3) + {GUARD} / sizeof(\2)];", DYNAMIC.sub("", HELPER.sub(_without_ptx, body)))
    section = f"shared_{at}"
    cluster = f"kernel_{at}::{found['cluster']}" if found["cluster"] else "1"
    storage = ""
    if dynamic := DYNAMIC.search(text):
        size = DYNAMIC_BYTES.search(text)
        assert size, f"{name} does not say how many bytes of shared memory it takes"
        kind = ELEMENTS[dynamic["kind"]].alias or dynamic["kind"]
        count = f"({size[1]} + {GUARD}) / sizeof({kind})"
        storage = f'alignas(1024) __attribute__((section("{section}"))) {kind} dynamicShared[{count}];'
    guard = GUARD if parts or dynamic else 0
    return (
        f"""
#undef HOST_SECTION
#define HOST_SECTION "{section}"
extern "C" {{ extern char __start_{section}[] __attribute__((weak, visibility("hidden")));
extern char __stop_{section}[] __attribute__((weak, visibility("hidden"))); }}
namespace kernel_{at} {{
{storage}
#line 1 "{name}.cu"
{body}
static void call(void** values) {{ host::call(kernel_{at}_entry, values); }}
}}
extern "C" int run_{at}(unsigned int* grid, int threads, void** values, int reverse, char* message, size_t capacity)
{{
    return host::launch(kernel_{at}::call, grid, {cluster}, threads, values, reverse, __start_{section},
                        __stop_{section}, {guard}, message, capacity);
}}
""",
        kinds,
    )


def _without_ptx(helper: re.Match[str]) -> str:
    """The helper, or as many empty lines; one of tensor cores, whose name says no type, calls the stub's of its own."""
    text = helper.group()
    if found := MMA.search(text):
        name, kind = re.search(r"void (\w+)\(", text), found["kind"]
        assert name is not None
        text = re.sub(
            r"\{.*\}", f"{{ host::mma<host::of_{kind}>(upper, lower, a, b, __LINE__); }}", text, flags=re.DOTALL
        )
        return text + "\n" * (helper.group().count("\n") - text.count("\n"))
    return "\n" * text.count("\n") if re.search(r"\basm\b", text) else text


def _compile(source: str, library: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        unit, made = Path(work, "kernels.cpp"), Path(work, "kernels.so")
        unit.write_text(source)
        command = ["g++", *FLAGS, f"-I{STUB.parent}", str(unit), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{' '.join(command)}\n{done.stderr}")
        library.parent.mkdir(parents=True, exist_ok=True)
        partial = library.with_suffix(f".{Path(work).name}")
        shutil.copyfile(made, partial)
        partial.replace(library)
