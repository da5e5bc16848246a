"""What every test shares: the tiers, tests of a GPU, the flag that refreshes expected texts, and the number of random
examples."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tiers import full_only, full_wanted

# Every kernel that a test makes is verified between levels.
os.environ.setdefault("GEMMGEN_VERIFY", "1")

# A tenth of the examples in the default tier: a test that asks for more or fewer scales as well (tiers.examples).
settings.register_profile("full", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.register_profile("default", settings.get_profile("full"), max_examples=10)
TOGETHER = {
    # The tests of a file share what takes long to make, and so a process; those of these files do with one another's
    # (texts built by the host's compiler, facts of all rungs).
    **{f"test_{name}": name for name in ("cuda_host", "cuda_mutants", "pipelines_host", "runtime_copies")},
    **{f"test_report{part}": "report" for part in ("", "_bottleneck", "_roofline", "_browser")},
}
HERE = Path(__file__).resolve().parent
GPU_TESTS = HERE / "gpu"
LAWFUL_SKIPS = (
    "is not for sm_",
    "needs sm_90",
    "there is a GPU",
    "root may write",
    "only root can",
    "not a git checkout",
    "torch is not installed",
    "nvcc is not installed",
)
"""Reasons that say what a case or a machine is, and not that something is missing; CI has neither torch nor nvcc."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refresh", action="store_true", help="write expected texts (fixtures, golden files) anew")
    parser.addoption(
        "--nvrtc", metavar="VERSION", help="refuse to run with an NVRTC of another version, 13.0 for example"
    )
    parser.addoption("--complete", action="store_true", help="fail a test that is skipped because something is missing")


def pytest_configure(config: pytest.Config) -> None:
    """Set what test modules read when they are imported; refuse another NVRTC than the one that is asked for."""
    if wanted := config.getoption("--nvrtc"):
        from gemmgen.runtime.nvrtc import version

        if wanted != ".".join(map(str, version())):
            raise pytest.UsageError(f"--nvrtc {wanted}: the NVRTC found here is {'.'.join(map(str, version()))}")
    profile = "full" if full_wanted(config) else "default"
    if os.environ.get("CI"):  # the same examples every time: what passes depends on the change alone
        settings.register_profile("ci", settings.get_profile(profile), derandomize=True, database=None)
        profile = "ci"
    settings.load_profile(profile)
    if getattr(config.option, "numprocesses", None) and config.option.dist == "load":
        config.option.dist = "loadgroup"  # tests of a group share costly fixtures, and so a process


@cache
def no_gpu() -> str | None:
    """Why no GPU can be used; None where one can."""
    from gemmgen.runtime.device import current, why_none

    return None if current() is not None else str(why_none())


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Tests that need a GPU are not collected where there is none."""
    return True if GPU_TESTS in (collection_path, *collection_path.parents) and no_gpu() else None


@pytest.hookimpl(tryfirst=True)  # before marks select
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of the full tier; leave out those that need a GPU where there is none."""
    named = any("::" in argument for argument in config.args)  # what is asked for by name runs
    moved = set() if named else full_only([item.nodeid for item in items])
    for item in items:
        if item.nodeid in moved:
            item.add_marker(pytest.mark.full)
        if config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(TOGETHER.get(item.path.stem, item.path.stem)))
    if any(item.get_closest_marker("gpu") for item in items) and no_gpu():
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Of two processes, one imports the test files from the last on: in a fresh checkout rewriting them takes 10 s, and
    each then finds half of them done by the other."""
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    whole = all(Path(argument).resolve() in (HERE, HERE.parent) for argument in session.config.args)
    if whole and number.isdecimal() and int(number) % 2 and not sys.dont_write_bytecode:
        for file in sorted(HERE.glob("test_*.py"), reverse=True):
            with contextlib.suppress(Exception, pytest.skip.Exception):  # collection says what is wrong with it
                import_module(file.stem)


def pytest_report_header(config: pytest.Config) -> list[str]:
    tier = "full" if full_wanted(config) else "default (tests/TIERS.md names the others)"
    return [f"tier: {tier}", *([f"no test that needs a GPU is collected: {why}"] if (why := no_gpu()) else [])]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):  # type: ignore[no-untyped-def]
    """With --complete, a test that is skipped because something is missing has failed."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and item.config.getoption("--complete") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if not hasattr(report, "wasxfail") and not any(lawful in reason for lawful in LAWFUL_SKIPS):
            report.outcome = "failed"
            report.longrepr = f"--complete: {reason}"


@pytest.fixture(scope="session", autouse=True)
def disassembled_once() -> Iterator[None]:
    """A cubin is disassembled once in a process: it takes nine tenths of explaining a kernel."""
    from gemmgen.runtime import sass

    real, known = sass.disassemble, dict[tuple[bytes, bool], str]()

    def remembered(cubin: bytes, *, lines: bool = False) -> str:
        if (cubin, lines) not in known or sass.find_tool("nvdisasm") is None:
            known[cubin, lines] = real(cubin, lines=lines)
        return known[cubin, lines]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sass, "disassemble", remembered)
        yield


@pytest.fixture(scope="module")
def chosen(request: pytest.FixtureRequest) -> Callable[..., set[tuple[Any, ...]]]:
    """Of the tests of this file that run in this session, the values of parameters: a fixture of the module makes what
    they need, and no more."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]

    def values(*names: str) -> set[tuple[Any, ...]]:
        return {tuple(c.params[n] for n in names) for c in calls if c is not None and c.params.keys() >= {*names}}

    return values


@pytest.fixture
def refresh(request: pytest.FixtureRequest) -> bool:
    """Whether expected texts are to be written, not compared."""
    return bool(request.config.getoption("--refresh"))
