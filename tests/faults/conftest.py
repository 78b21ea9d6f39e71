"""Beds for cells, and where their results go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.bed import Bed, Beds, single_answers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A cell that hangs must not take the others and their processes with it, as the thread method does."""
    for item in items:
        if "faults" in item.path.parts and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600, method="signal"))


@pytest.fixture(scope="session")
def record() -> Path | None:
    """The file that `make faults` makes its page from; None in a plain test run."""
    named = os.environ.get("FAULTS_RESULTS")
    return Path(named) if named else None


@pytest.fixture(scope="session")
def right(tmp_path_factory: pytest.TempPathFactory, smollm: Path) -> list[str]:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    return single_answers(shared, smollm)


@pytest.fixture(scope="package")
def beds(tmp_path_factory: pytest.TempPathFactory, smollm: Path, right: list[str]) -> Iterator[Beds]:
    made = Beds(tmp_path_factory.mktemp("beds"), smollm, right)
    yield made
    made.close()


@pytest.fixture
def bed(beds: Beds) -> Bed:
    """Prefill of two ranks, decode of one: unequal, so that every cell re-slices heads too."""
    return beds.get(2, 1)
