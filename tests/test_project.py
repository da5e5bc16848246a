"""The shape of the project: which part imports which, and how long files are."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gemmgen"
LONGEST = 430
"""About 400: a file may finish its thought."""

LAYERS: tuple[tuple[str, ...], ...] = (
    ("diagnostics", "version", "text"),
    ("ir",),
    ("target", "isa"),
    ("spec",),
    ("tile",),
    ("lower",),
    ("launch",),
    ("cuda", "sim", "analysis"),
    ("runtime",),
    ("api",),
    ("verify",),
    ("tune",),
    ("dispatch",),
    ("report", "export", "torch"),
    ("lesson", "play"),
    ("cli",),
    ("__main__",),
)
"""Each part imports parts of the layers above it here, and itself; the parts of one layer never import one another."""

RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
CUDA_LIBRARIES = {"cuda", "cupy", "nvmath", "pynvml"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The part of gemmgen a file is: its package, or its own name at the top."""
    return named(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))


def named(name: str) -> str:
    """The part a name of ``gemmgen`` belongs to: its public names are those of the topmost part that has any."""
    return "dispatch" if name == "__init__" or name not in RANK else name


def runtime_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below, without what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            yield from (n for statement in child.orelse for n in ast.walk(statement))
            continue
        yield child
        yield from runtime_statements(child)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import in a file, functions included."""
    for node in runtime_statements(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=str() as module, level=0, names=names):
                if module == "gemmgen":
                    yield from ((node.lineno, f"gemmgen.{alias.name}") for alias in names)
                else:
                    yield node.lineno, module
            case ast.ImportFrom(level=level) if level > 0:
                pytest.fail(f"{path}:{node.lineno}: relative import; write it in full")
            case _:
                pass


def violations(path: Path) -> Iterator[str]:
    own = part_of(path)
    for line, name in imported(path):
        top, _, rest = name.partition(".")
        if top in CUDA_LIBRARIES and own != "runtime":
            yield f"{path.relative_to(ROOT)}:{line}: only gemmgen.runtime imports {top}"
        if top != "gemmgen":
            continue
        other = named(rest.split(".")[0])
        if other != own and RANK[other] >= RANK[own]:
            yield f"{path.relative_to(ROOT)}:{line}: {own} imports {other}, which is not below it"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    top = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert top == "__init__" or top in RANK, f"{top} has no place among the layers"
    assert list(violations(path)) == []


def test_the_import_check_sees_a_wrong_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "sim").mkdir()
    file = tmp_path / "sim" / "wrong.py"
    file.write_text("def f():\n    from gemmgen.cuda.emit import emit_cuda\n    import cuda.core\n")
    assert len(list(violations(file))) == 2
    file.write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import cuda.core\n")
    assert list(violations(file)) == []


@pytest.mark.parametrize("path", [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))], ids=lambda p: p.name)
def test_files_are_short_enough_to_read(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= LONGEST, f"{path.relative_to(ROOT)} has {lines} lines; split it by idea"


def test_nothing_but_the_plan_lies_at_the_top() -> None:
    """The top of the repository is what the layout says, dot files and a licence aside."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so there is no list of what belongs to the project")
    top = {line.split("/")[0] for line in listed.stdout.splitlines() if not line.startswith(".")}
    plan = {
        "pyproject.toml",
        "README.md",
        "gemmgen",
        "grammar",
        "examples",
        "tests",
        "generated",
        "specs",
        "LICENSE",
        "docs",
    }
    assert top <= plan


def test_importing_gemmgen_loads_nothing_heavy() -> None:
    code = "import sys, gemmgen; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"cuda", "numpy", "rich", "typer", "lark"}.isdisjoint(done.stdout.split())
