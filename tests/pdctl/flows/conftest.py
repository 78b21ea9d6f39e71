"""A fleet on this machine whose engines are fake_engine.py; everything around them is real."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pdctl.errors import PdctlError
from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Fleet
from pdctl.flows.context import Context
from pdctl.flows.deploy import Deploy, apply_deploy, plan_deploy
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, init_local
from pdctl.flows.ready import wait_ready
from pdctl.remote.journal import Journal

FAKE = Path(__file__).with_name("fake_engine.py")
WAIT = 30.0


@dataclass
class Bench:
    """A fleet folder, and deploys of whatever its files say at the moment."""

    folder: Path
    restarted: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.folder / "fleet.toml"

    def fleet(self) -> Fleet:
        return load_fleet(self.path)

    def context(self) -> Context:
        return Context(self.fleet(), say=self.said.append)

    def edit(self, old: str, new: str, file: str = "fleet.toml") -> None:
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def behave(self, unit: str, how: str) -> None:
        path = Path(self.fleet().host_paths("local").root) / "env" / f"{unit}.behave"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(how)

    def restart(self, ctx: Context, cell: str) -> None:
        """In place of the co-restart: the order without its holds and links."""
        self.restarted.append(cell)
        for engine in ctx.fleet.cells[cell].engines:
            ctx.units(engine.host).restart(engine.name)
        wait_ready(ctx, ctx.fleet.cells[cell].engines, WAIT)

    def plan(self) -> Deploy:
        return plan_deploy(self.context(), WAIT, self.restart)

    def deploy(self) -> Deploy:
        made = self.plan()
        if made.plan.changes:
            with Journal(made.ctx.fleet.paths.journal, "deploy") as journal:
                apply_deploy(made, journal)
        return made

    def lives(self) -> dict[str, int | None]:
        """Unit -> pid of the process that runs now."""
        ctx = self.context()
        return {name: status.pid for name, status in ctx.units("local").status().items()}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    # The release is a fixed one: a tree that is edited meanwhile would be another release.
    monkeypatch.setattr("pdctl.flows.deploy.package_files", lambda: {"engine/__init__.py": b""})
    (tmp_path / "model").mkdir()
    init_local(tmp_path / "fleet.toml", Wanted("test", str(tmp_path / "model")))
    made = Bench(tmp_path)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    python.chmod(0o755)
    made.edit('transport = "local"\n', f'transport = "local"\npython = "{python}"\n')
    yield made
    made.path.exists() and down(made.context())


@pytest.fixture
def fails() -> Callable[[Bench], PdctlError]:
    """Deploy, insist that it fails, and give the error."""

    def run(bench: Bench) -> PdctlError:
        with pytest.raises(PdctlError) as caught:
            bench.deploy()
        return caught.value

    return run
