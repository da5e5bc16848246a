"""What every test shares: the flag that refreshes expected texts, and a bound on random examples."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# Every kernel that a test makes is verified between levels.
os.environ.setdefault("GEMMGEN_VERIFY", "1")

settings.register_profile("gemmgen", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
# With CI set, the same examples every time: what passes depends on the change alone. Elsewhere new ones are drawn.
settings.register_profile("ci", settings.get_profile("gemmgen"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "gemmgen")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refresh", action="store_true", help="write expected texts (fixtures, golden files) anew")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``gpu`` are skipped, with the reason, where no GPU can be used."""
    from gemmgen.runtime.device import current, why_none

    if any(item.get_closest_marker("gpu") for item in items) and current() is None:
        skip = pytest.mark.skip(reason=f"no GPU: {why_none()}")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)


@pytest.fixture
def refresh(request: pytest.FixtureRequest) -> bool:
    """Whether expected texts are to be written, not compared."""
    return bool(request.config.getoption("--refresh"))
