"""A stack for each test, and one shared pair for all tests that leave it as it was, which run last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, stack

HERE = Path(__file__).parent
OF_PAIR = ("test_handover.py", "test_serving.py", "test_storms.py", "test_watchdog.py")


@pytest.fixture
def fresh(tmp_path: Path, smollm: Path) -> Iterator[Stack]:
    with stack(tmp_path, smollm) as s:
        yield s


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Engines of its own and those of the pair would not fit into every machine together."""
    ours = [n for n, item in enumerate(items) if HERE in item.path.parents]
    last = sorted((items[n] for n in ours), key=lambda item: item.path.name in OF_PAIR)
    for n, item in zip(ours, last, strict=True):
        items[n] = item


@pytest.fixture(scope="package")
def pair(tmp_path_factory: pytest.TempPathFactory, smollm: Path) -> Iterator[Stack]:
    """prefill-0, decode-0, a single engine to compare with, and a router, all of one rank."""
    with stack(tmp_path_factory.mktemp("pair"), smollm) as s:
        s.engine("prefill-0", "prefill")
        s.engine("decode-0", "decode")
        s.engine("single", "both")
        s["prefill-0"].wait_ready()
        s["decode-0"].wait_ready()
        s.router()
        s.wait_ready()
        yield s
