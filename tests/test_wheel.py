"""gemmgen with no checkout around: a wheel in a fresh environment, and an editable install."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = "from hatchling.build import build_{kind} as build; print(build({folder!r}))"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None, reason="hatchling, which builds the wheel, is not installed"
)


def built(kind: str, folder: Path, checkout: Path = ROOT) -> Path:
    """The file that the build backend makes of a checkout."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(kind=kind, folder=str(folder))],
        cwd=checkout, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an archive of kernels, as a release has: of an architecture that no GPU has. Made of a copy, since another
    process may be building too."""
    checkout = tmp_path_factory.mktemp("checkout") / "gemmgen"
    wanted = ("gemmgen", "grammar", "specs", "generated", "docs", "examples")
    for name in wanted:
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    archive = checkout / "gemmgen" / "records" / "ready" / "sm_00.zip"
    archive.parent.mkdir(exist_ok=True)
    archive.write_bytes(b"kernels")
    return built("wheel", tmp_path_factory.mktemp("wheel"), checkout)


def environment_with(wheel: Path, folder: Path) -> Path:
    """A fresh environment with a wheel in it; what gemmgen depends on is that of the environment running the tests.

    Returns its Python.
    """
    venv.create(folder, with_pip=False)
    windows = sys.platform == "win32"
    site = folder / ("Lib/site-packages" if windows else f"lib/python3.{sys.version_info.minor}/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    here = [p for p in sys.path if p.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(here), encoding="utf-8")
    return folder / ("Scripts/python.exe" if windows else "bin/python")


def run(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([str(python), *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(wheel, tmp_path_factory.mktemp("installed"))


def test_the_grammar_and_the_ladder_ship_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "gemmgen/_data/grammar/gemm.lark" in names
    assert {f"gemmgen/_data/specs/{p.name}" for p in (ROOT / "specs").glob("*.gemm")} <= names
    assert "gemmgen/py.typed" in names and "gemmgen/records/ready/sm_00.zip" in names
    assert not {name for name in names if name.startswith(("tests/", "generated/", "examples/"))}


def test_it_works_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    where = run(installed, "-c", "import gemmgen; print(gemmgen.__file__)", cwd=tmp_path)
    assert where.returncode == 0, where.stderr
    assert Path(where.stdout.strip()).is_relative_to(installed.parent.parent)
    done = run(installed, "-m", "gemmgen", "run", "warptile", "--size", "33x34x35", "--device", "sim", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PASS:" in done.stdout
    committed = (ROOT / "generated" / "warptile.cu").read_bytes()
    assert (tmp_path / "generated" / "warptile.cu").read_bytes() == committed


def test_every_rung_can_be_named_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    names = [p.stem for p in (ROOT / "specs").glob("*.gemm")]
    done = run(installed, "-m", "gemmgen", "check", *names, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK") == len(names)


def test_an_editable_install_finds_what_lies_beside_the_package(tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("gemmgen", "generated", "grammar", "specs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(kind="editable", folder=str(tmp_path))],
        cwd=copy, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    python = environment_with(tmp_path / done.stdout.split()[-1], tmp_path / "editable")
    empty = tmp_path / "empty"
    empty.mkdir()
    changed = copy / "specs" / "naive.gemm"
    changed.write_text(changed.read_text(encoding="utf-8").replace("32x32", "16x16"), encoding="utf-8")
    done = run(python, "-m", "gemmgen", "check", "naive", "--json", cwd=empty)
    assert done.returncode == 0, done.stderr
    assert str(changed) in done.stdout and "16" in done.stdout


def test_the_version_is_one(wheel: Path) -> None:
    from gemmgen.version import __version__

    assert wheel.name.startswith(f"gemmgen-{__version__}-py3-none-any")
