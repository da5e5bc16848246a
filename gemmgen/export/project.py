"""Specs as a C++ project: every file made in memory, then written at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.diagnostics import ArgumentError, escaped
from gemmgen.export.chains import chain_name, chain_text
from gemmgen.export.kernels import Exported, compiled, described
from gemmgen.export.readme import readme_values
from gemmgen.export.tables import MOST_BESIDE, MOST_MAPS, MOST_PARAMETERS, header_text, source_text
from gemmgen.export.writing import check_folder, write_folder

if TYPE_CHECKING:
    from gemmgen.dispatch.select import Choice
    from gemmgen.spec.model import Spec

    Shape = tuple[int, int, int]

TEMPLATES = Path(__file__).parent / "templates"
OWN_NAMES = frozenset({"rt", "gemm", "prepare", "workspace_bytes", "Arguments", "all", "any"})
"""What a namespace of a project has beside its kernels, and two functions that nvcc declares before any text."""
NEUTRAL = "kernels"
"""The project of a folder whose name makes none."""


@dataclass(frozen=True)
class Winner:
    """A shape, and the name of the kernel for it; a ``swapped`` one is called with B^T, A^T and C^T."""

    shape: Shape
    name: str
    swapped: bool = False


def export(
    spec: Spec | Sequence[Spec], folder: str | PathLike[str], arch: str | None = None, *, shapes: Iterable[Shape] = ()
) -> list[Path]:
    """Write a C++ project of one spec or several into ``folder``, named as that, and return the files' paths.

    Each spec's kernels are compiled for ``arch`` (default: what the spec says, else this machine's GPU, else sm_90) and
    embedded, beside a launcher that needs the CUDA driver alone. ``shapes`` (M, N, K) add the kernels that ``matmul``
    uses for them, and a ``gemm`` that chooses among these. Needs NVRTC but no GPU. Nothing is written where anything
    is wrong: raises ArgumentError, SpecError, CompileError or OSError.
    """
    specs = _specs(spec)
    chosen = _chosen(shapes)
    project = project_name(folder)
    named = _named([*specs, *(s for _, s, _ in chosen)])
    if not named:
        raise ArgumentError("there is nothing to export; pass a spec, or shapes")
    targets = {name: _arch(s, arch) for name, s in named.items()}
    target = check_folder(Path(folder))
    made = [compiled(described(s, targets[name], name, project)) for name, s in named.items()]
    names = {s: name for name, s in named.items()}
    winners = [Winner(shape, names[s], swapped) for shape, s, swapped in chosen]
    return write_folder(target, project_files(made, project, target.name, winners))


def project_files(
    made: Sequence[Exported], project: str, folder: str, winners: Sequence[Winner] = ()
) -> dict[str, bytes]:
    """Every file of a project by its path inside the folder."""
    values = _values(made, project, folder, winners)
    texts = {
        "CMakeLists.txt": _filled("CMakeLists.txt", values),
        "README.md": _filled("README.md", values),
        "main.cpp": _filled("main.cpp", values),
        f"cmake/{project}Config.cmake": _filled("Config.cmake", values),
        f"include/{project}/{project}.hpp": _filled("project.hpp", values).rstrip() + "\n",
        f"include/{project}/rt/plan.hpp": _filled("plan.hpp", values),
        f"include/{project}/rt/launcher.hpp": _filled("launcher.hpp", values),
    }
    for x in made:
        texts[f"include/{project}/{x.name}.hpp"] = header_text(x, project)
        texts[f"src/{x.name}.cpp"] = source_text(x, project)
        texts |= {f"cuda/{kernel.name}.cu": kernel.source for kernel in x.kernels}
    return {path: text.encode() for path, text in texts.items()}


def project_name(folder: str | PathLike[str]) -> str:
    """The C++ namespace and CMake package of a folder: its name, as an identifier."""
    from gemmgen.spec.names import name_problem

    if not isinstance(folder, (str, PathLike)) or not str(folder):
        raise ArgumentError(f"folder is {folder!r}; it names the directory to write, as 'kernels' does")
    name = re.sub(r"[^A-Za-z0-9_]+", "_", Path(folder).resolve().name).strip("_")
    name = f"_{name}" if name[:1].isdigit() else name
    if not name or name.startswith("_"):
        name = f"{NEUTRAL}{name}"
    return f"{name}_{NEUTRAL}" if name_problem(name) or name in OWN_NAMES else name


def _specs(spec: Spec | Sequence[Spec]) -> list[Spec]:
    from gemmgen.api.specs import checked

    given: Sequence[Any] = spec if isinstance(spec, (list, tuple)) else [spec]
    found = [checked(x) for x in given]
    by_name: dict[str, str] = {}
    for x in found:
        if x.name in by_name:
            files = f"{escaped(by_name[x.name])} and {escaped(x.filename)}"
            raise ArgumentError(f"{files} are both kernel {x.name}; give one kernel another name")
        by_name[x.name] = x.filename
    return found


def _chosen(shapes: Iterable[Shape]) -> list[tuple[Shape, Spec, bool]]:
    """Each shape with the spec that ``matmul`` uses for it, and whether that is called with operands swapped."""
    from gemmgen.diagnostics import whole_number
    from gemmgen.dispatch.matmul import choice_for

    found: dict[Shape, Choice] = {}
    for shape in shapes:
        if not isinstance(shape, (list, tuple)) or len(shape) != 3:
            raise ArgumentError(f"shapes has {shape!r}; a shape is (M, N, K)")
        m, n, k = (whole_number(name, x, 1) for name, x in zip("MNK", shape, strict=True))
        found[m, n, k] = choice_for(m, n, k)
    return [(shape, choice.spec, choice.swapped) for shape, choice in found.items()]


def _named(specs: Iterable[Spec]) -> dict[str, Spec]:
    """The specs by the name that each has in the project; one that comes twice, once."""
    found: dict[str, Spec] = {}
    for spec in specs:
        if spec in found.values():
            continue
        base = f"{spec.name}_kernel" if spec.name in OWN_NAMES else spec.name
        name, number = base, 1
        while name in found:
            number += 1
            name = f"{base}_{number}"
        found[name] = spec
    return found


def _arch(spec: Spec, arch: str | None) -> str:
    from gemmgen.api.specs import architecture
    from gemmgen.runtime.device import current
    from gemmgen.runtime.target import DEFAULT_ARCH

    device = current() if arch is None and spec.arch is None else None
    found = architecture(arch or spec.arch or (device.arch if device is not None else DEFAULT_ARCH), spec)
    if not found.startswith("sm_"):
        raise ArgumentError(f"arch is {found!r}; an export is compiled for a real architecture, such as 'sm_90'")
    return found


def _filled(template: str, values: Mapping[str, str]) -> str:
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _values(made: Sequence[Exported], project: str, folder: str, winners: Sequence[Winner]) -> dict[str, str]:
    from gemmgen.runtime.target import ALONE
    from gemmgen.text.numbers import counted
    from gemmgen.version import __version__

    first = winners[0].name if winners else made[0].name
    values = {
        "INCLUDES": "\n".join(f'#include "{x.name}.hpp"' for x in made),
        "SOURCES": "\n".join(f"  src/{x.name}.cpp" for x in made),
        "ENTRIES": "\n".join(f"    {{&{x.name}::spec, {x.name}::loaded, {chain_name(x)}}}," for x in made),
        "CHAINS": "\n".join(map(chain_text, made)),
        "SUMMARY": f"{counted(len(made), 'GEMM kernel')} with a launcher.",
        **readme_values(made),
        "FIRST": first,
        "FOLDER": folder,
        "PROJECT": project,
        "VERSION": __version__,
        "ALONE": ", ".join(map(str, sorted(ALONE))),
        "MOST_PARAMETERS": str(MOST_PARAMETERS),
        "MOST_MAPS": str(MOST_MAPS),
        "MOST_BESIDE": str(MOST_BESIDE),
        "WINNERS": "\n".join(map(_winner_row, winners)),
    }
    chosen = (
        f"\n`{project}::gemm(args)` chooses among the kernels by the shape: that of the nearest of the shapes that were"
        f"\ngiven at the export.\n"
    )
    header = _filled("choice.hpp", values) if winners else ""
    return {**values, "CHOICE": header, "CHOICE_NOTE": chosen if winners else ""}


def _winner_row(w: Winner) -> str:
    calls = f"{w.name}::gemm, {w.name}::workspace_bytes, {w.name}::prepare"
    return f"    {{{', '.join(map(str, w.shape))}, {calls}, {'true' if w.swapped else 'false'}}},"
