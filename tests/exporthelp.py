"""A host program that prints what the exported launcher plans, and the tools that exported projects are built with."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from gemmgen.export.kernels import Exported, described
from gemmgen.export.project import project_files
from gemmgen.spec.model import Spec

PROJECT = "planned"
COMPILER = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")

MAIN = """
#include <planned/rt/plan.hpp>
#include <cstdio>
using namespace planned;
%s
int main() {
    const rt::Spec* specs[] = {%s};
    int which;
    rt::Call c;
    rt::Limits limits;
    unsigned long long a[3];
    int beside;
    while (std::scanf("%%d %%lld %%lld %%lld %%lld %%lld %%lld %%llu %%llu %%llu %%f %%f %%lld %%lld %%d", &which, &c.M,
                      &c.N, &c.K, &c.leading[0], &c.leading[1], &c.leading[2], &a[0], &a[1], &a[2], &c.alpha, &c.beta,
                      &limits.grid_y, &limits.span, &beside) == 15) {
        for (int x = 0; x < beside; ++x) {
            unsigned long long address;
            if (std::scanf("%%lld %%llu", &c.beside_leading[x], &address) != 2) return 1;
            c.beside_address[x] = address;
        }
        for (int x = 0; x < 3; ++x) c.address[x] = a[x];
        rt::Decided d;
        rt::Status status = rt::decide(*specs[which], c, d, limits);
        std::printf("call\\t%%d\\t%%s\\t%%s\\t%%zu\\n", status.code, status.message.c_str(),
                    d.variant ? d.variant->label : "", d.workspace);
        if (status) status = rt::launches(*specs[which], d, [&](const rt::Launch& l) {
            std::string own;
            for (int x = 0; x < specs[which]->beside_count; ++x) {
                own += " " + std::to_string(rt::beside_offset(*specs[which], x, l, d.call));
                own += " " + std::to_string(d.call.beside_leading[x]);
            }
            std::printf("launch\\t%%d\\t%%lld %%lld %%lld\\t%%lld %%lld %%lld\\t%%a %%a\\t%%lld %%lld %%lld\\t"
                        "%%lld %%lld %%lld %%lld\\t%%d %%d\\t%%s\\n", int(l.part), l.grid[0], l.grid[1], l.grid[2], l.M,
                        l.N, l.K, l.alpha, l.beta, l.offset[0], l.offset[1], l.offset[2], l.leading[0], l.leading[1],
                        l.leading[2], l.ldw, l.to_workspace, l.dependent, own.c_str());
            return rt::Status();
        });
    }
}
"""


@cache
def headers() -> Path | None:
    """The folder of ``cuda.h``: from the package nvidia-cuda-runtime, else from a toolkit. None where there is none."""
    from importlib.metadata import PackageNotFoundError, files

    found: list[Path] = []
    with contextlib.suppress(PackageNotFoundError):
        found += [Path(str(f.locate())).parent for f in files("nvidia-cuda-runtime") or () if f.name == "cuda.h"]
    tops = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    found += [Path(top) / "include" for top in tops if top]
    return next((folder for folder in found if (folder / "cuda.h").is_file()), None)


def missing_to_build() -> str | None:
    """What keeps an exported project from being built here."""
    if CMAKE is None:
        return "cmake is not installed (pip install cmake)"
    if COMPILER is None:
        return "there is no C++ compiler"
    if headers() is None:
        return "cuda.h is not found (pip install nvidia-cuda-runtime)"
    return None


def uncompiled(specs: Iterable[Spec], arch: str = "sm_90", *, numbered: bool = True) -> list[Exported]:
    """Specs as an export describes them, with a few bytes in place of every cubin and PTX."""
    found = []
    for i, spec in enumerate(specs):
        made = described(spec, arch, f"{spec.name}_{i}" if numbered else spec.name, PROJECT)  # fixtures share names
        found.append(replace(made, kernels=tuple(replace(k, cubin=b"\0", ptx=b"// \0\0") for k in made.kernels)))
    return found


def build_planner(made: Sequence[Exported], folder: Path) -> Path:
    """The program that reads calls and prints what the launcher plans for them."""
    assert COMPILER is not None
    for path, data in project_files(made, PROJECT, "planned").items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    declared = "\n".join(f"namespace planned {{ namespace {x.name} {{ extern const rt::Spec spec; }} }}" for x in made)
    pointers = ", ".join(f"&{x.name}::spec" for x in made)
    # One translation unit: the standard library's headers are read once.
    sources = "".join(f'#include "src/{x.name}.cpp"\n' for x in made)
    (folder / "planner.cpp").write_text(sources + MAIN % (declared, pointers))
    program = folder / "planner"
    command = [COMPILER, "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{folder / 'include'}"]
    subprocess.run([*command, str(folder / "planner.cpp"), "-o", str(program)], check=True)
    return program


def build_project(folder: Path, *options: str) -> Path:
    """Configure and build an exported project by CMake, warnings being errors. The build folder."""
    assert CMAKE is not None
    where = folder.parent / f"{folder.name}-build"
    flags = [f"-DCUDA_INCLUDE_DIR={headers()}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror", *options]
    for command in ([CMAKE, "-S", folder, "-B", where, *flags], [CMAKE, "--build", where]):
        done = subprocess.run([str(x) for x in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return where
