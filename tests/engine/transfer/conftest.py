"""Engines that are stopped at the end of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.engine.transfer.harness import Engine


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(role: str, instance: str, **options: object) -> Engine:
        made.append(Engine(role, instance, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in reversed(made):
        one.stop()
