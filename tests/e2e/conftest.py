"""A stack for each test, and one shared pair for the tests that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, stack


@pytest.fixture
def fresh(tmp_path: Path, smollm: Path) -> Iterator[Stack]:
    with stack(tmp_path, smollm) as s:
        yield s


@pytest.fixture(scope="module")
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
