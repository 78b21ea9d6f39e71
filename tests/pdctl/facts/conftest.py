"""A host to ask: this machine, through the real transport and the whole tool."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from pdctl.facts.ask import ask
from pdctl.transport.local import LocalTransport


def wait_for(check: Callable[[], object], what: str, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


@pytest.fixture
def tell() -> Callable[..., Any]:
    """`tell(subject, **arguments)`: what the tool answers, or Missing."""

    def run(subject: str, **arguments: Any) -> Any:
        return ask(LocalTransport("here"), sys.executable, {subject: arguments}).of(subject)

    return run


@pytest.fixture
def until() -> Callable[..., None]:
    return wait_for
