"""A folder with the shipped profiles, and fleet files written into it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

GOOD = """schema = 1

[fleet]
name = "demo"

[model]
path = "model"
name = "small"

[hosts.local]
transport = "local"

[cells.a.engines.prefill-0]
role = "prefill"
host = "local"
port = 8101
bootstrap_port = 8102

[cells.a.engines.decode-0]
role = "decode"
host = "local"
port = 8103

[router]
host = "local"
port = 8100
"""


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles"
    folder.mkdir()
    for source in files("profiles").iterdir():
        if source.name.endswith(".toml"):
            shutil.copyfile(str(source), folder / source.name)
    return folder


@pytest.fixture
def write_fleet(tmp_path: Path, profiles: Path) -> Callable[..., Path]:
    """Write the good file with `old` replaced by `new` for each pair given."""

    def write(*changes: tuple[str, str]) -> Path:
        text = GOOD
        for old, new in changes:
            assert old in text, f"the good file does not hold {old!r}"
            text = text.replace(old, new)
        path = tmp_path / "fleet.toml"
        path.write_text(text)
        return path

    return write
