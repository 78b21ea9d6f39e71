"""A folder to adopt in, and the verb as an operator calls it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pdctl.__main__ import main
from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.fleet.profile import engine_env

ENGINE = "/opt/venv/bin/python -m sglang.launch_server --model-path /m --served-model-name m"


@dataclass
class Bench:
    """`adopt` calls the verb in `folder`; what it wrote is below `out`."""

    folder: Path
    capture: Any

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def adopt(self, *argv: str) -> tuple[int, dict[str, Any]]:
        """(exit code, the --json document)."""
        self.capture.readouterr()
        code = main(["adopt", "--json", "--out", str(self.out), *argv])
        return code, json.loads(self.capture.readouterr().out)

    def script(self, text: str, *argv: str, name: str = "serve.sh") -> tuple[int, dict[str, Any]]:
        return self.adopt(self.write(name, text), *argv)

    def fleet(self) -> Fleet:
        return load_fleet(self.out)

    def env(self, name: str) -> dict[str, str]:
        fleet = self.fleet()
        unit: Engine | Router = fleet.router if name == "router" else fleet.engine(name)
        return {n: v.value for n, v in engine_env(fleet, unit).items()}


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path, capsys)


@pytest.fixture
def said() -> Callable[[dict[str, Any], str], list[str]]:
    """What a document says in one grade."""

    def lines(document: dict[str, Any], grade: str) -> list[str]:
        return [n["said"] for n in document["notes"] if n["grade"] == grade]

    return lines
