"""A fleet on this machine whose engines are fake_engine.py; everything around them is real."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pdctl.errors import PdctlError
from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Fleet
from pdctl.flows.context import Context
from pdctl.flows.deploy.planning import Deploy, plan_deploy
from pdctl.flows.deploy.result import Outcome
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, init_fleet
from pdctl.flows.ready import wait_ready
from pdctl.remote.journal import Journal
from tests.pdctl.models import model_folder

FAKE = Path(__file__).with_name("fake_engine.py")
WAIT = 30.0


@dataclass
class Bench:
    """A fleet folder, and deploys of whatever its files say at the moment."""

    folder: Path
    restarted: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    # What a release is made of: a fixed one, since a tree that is edited meanwhile would be another.
    files: dict[str, bytes] = field(default_factory=lambda: {"engine/__init__.py": b""})
    # With a preflight, which has tests of its own (test_deploy_preflight.py).
    check: bool = False

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

    def root(self, host: str = "local") -> Path:
        return Path(self.fleet().host_paths(host).root)

    def behave(self, unit: str, how: str) -> None:
        """Whatever release it runs from."""
        path = self.root(self.fleet().unit(unit).host) / "env" / f"{unit}.behave"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(how)

    def restart(self, ctx: Context, cell: str) -> None:
        """In place of the co-restart: the order without its holds and links."""
        self.restarted.append(cell)
        for engine in ctx.fleet.cells[cell].engines:
            ctx.units(engine.host).stop(engine.name)
        for engine in ctx.fleet.cells[cell].engines:
            ctx.units(engine.host).start(engine.name)
        wait_ready(ctx, ctx.fleet.cells[cell].engines, WAIT)

    def plan(self, *limit: str) -> Deploy:
        return plan_deploy(self.context(), WAIT, self.restart, limit, self.check)

    def apply(self, made: Deploy) -> Outcome:
        with Journal(made.ctx.fleet.paths.journal, made.verb) as journal:
            return apply_deploy(made, journal)

    def deploy(self, *limit: str) -> Deploy:
        made = self.plan(*limit)
        if made.plan.changes:
            self.apply(made)
        return made

    def lives(self) -> dict[str, int | None]:
        """Unit -> pid of the process that runs now."""
        ctx = self.context()
        there = [ctx.units(host).status() for host in ctx.fleet.hosts]
        return {name: status.pid for statuses in there for name, status in statuses.items()}

    def serving(self) -> dict[str, str]:
        """Unit -> release that its process was started from."""
        found = {}
        for name, pid in self.lives().items():
            if pid is not None:
                words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
                found[name] = next(w.partition("=")[2] for w in words if w.startswith("PDCTL_RELEASE="))
        return found


def fake_python(folder: Path) -> Path:
    """An interpreter whose `-m engine` is fake_engine.py; for anything else it is the real one."""
    python = folder / "python"
    fake = f'[ "$1 $2" = "-m engine" ] && exec {sys.executable} {FAKE} "$@"'
    python.write_text(f'#!/bin/sh\n{fake}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """One cell on this machine."""
    model_folder(tmp_path / "model")
    init_fleet(tmp_path / "fleet.toml", Wanted("test", str(tmp_path / "model")))
    made = Bench(tmp_path)
    monkeypatch.setattr("pdctl.flows.deploy.planning.package_files", lambda: made.files)
    made.edit('transport = "local"\n', f'transport = "local"\npython = "{fake_python(tmp_path)}"\n')
    yield made
    made.path.exists() and down(made.context())


PAIR = """
[cells.{cell}.engines.prefill-{cell}]
role = "prefill"
host = "{host}"
port = {port}
bootstrap_port = {bootstrap}

[cells.{cell}.engines.decode-{cell}]
role = "decode"
host = "{host}"
port = {last}
"""


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Two hosts on this machine, a cell on each, the router on the first."""
    model_folder(tmp_path / "model")
    init_fleet(tmp_path / "fleet.toml", Wanted("test", str(tmp_path / "model"), decodes=6))
    made = Bench(tmp_path)
    monkeypatch.setattr("pdctl.flows.deploy.planning.package_files", lambda: made.files)
    ports = [e.port for e in made.fleet().engines() if e.role == "decode"]
    python = fake_python(tmp_path)
    head, _, _ = made.path.read_text().partition("[hosts.")
    hosts = "".join(f'[hosts.{h}]\ntransport = "local"\npython = "{python}"\n' for h in ("h1", "h2"))
    cells = [
        PAIR.format(cell=c, host=h, port=ports[n], bootstrap=ports[n + 1], last=ports[n + 2])
        for c, h, n in (("a", "h1", 0), ("b", "h2", 3))
    ]
    front = f'\n[router]\nhost = "h1"\nport = {made.fleet().router.port}\n'
    made.path.write_text(head + hosts + "".join(cells) + front)
    yield made
    made.path.write_text(re.sub(r'python = "/gone[^"]*"', f'python = "{python}"', made.path.read_text()))
    down(made.context())


@pytest.fixture
def fails() -> Callable[[Bench], PdctlError]:
    """Deploy, insist that it fails, and give the error."""

    def run(bench: Bench) -> PdctlError:
        with pytest.raises(PdctlError) as caught:
            bench.deploy()
        return caught.value

    return run
