"""One checkpoint and its transformers model per architecture, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from tests.engine.models.tiny import build

Tiny = Callable[[str], tuple[Path, PreTrainedModel]]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    made: dict[str, tuple[Path, PreTrainedModel]] = {}

    def get(name: str) -> tuple[Path, PreTrainedModel]:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            made[name] = (folder, build(name, folder))
        return made[name]

    return get
