"""A fleet of real engines on test hosts, as an operator has it: a fleet file, profiles, ssh, `pdctl`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Fleet
from pdctl.flows.context import Context
from pdctl.flows.deploy.planning import Deploy, plan_deploy
from pdctl.flows.deploy.result import Outcome
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.init import Wanted, init_fleet, remote
from pdctl.flows.tune.load import Shape, Shot, drive
from pdctl.remote.journal import Journal
from tests.hosts.hostpython import PYTHON
from tests.hosts.lab.lab import Lab

WAIT = 240.0


@dataclass
class RealFleet:
    """Two cells: `a` over h1 and h2, `b` on h3 alone; the router on h1."""

    folder: Path
    lab: Lab
    said: list[str] = field(default_factory=list)

    @property
    def fleet(self) -> Fleet:
        return load_fleet(self.folder / "fleet.toml")

    def context(self) -> Context:
        return Context(self.fleet, say=self.said.append)

    def edit(self, old: str, new: str, file: str = "fleet.toml") -> None:
        path = self.folder / file
        text = path.read_text()
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new, 1))

    def deploy(self) -> tuple[Deploy, Outcome]:
        with self.context() as ctx, Journal(ctx.fleet.paths.journal, "deploy") as journal:
            made = plan_deploy(ctx, WAIT)
            return made, apply_deploy(made, journal)

    def changes(self) -> list[str]:
        with self.context() as ctx:
            return [p.step.id for p in plan_deploy(ctx, WAIT).plan.pending if not p.step.gate]

    def pids(self) -> dict[str, int | None]:
        with self.context() as ctx:
            return {n: s.pid for h in ctx.fleet.hosts for n, s in ctx.units(h).status().items()}

    def state(self, unit: str) -> dict[str, Any]:
        with self.context() as ctx, ctx.client(5.0) as client:
            found: dict[str, Any] = client.get(f"{ctx.fleet.unit(unit).url}/v1/state").json()
            return found

    def ask(self, prompt: str = "The capital of France is", tokens: int = 12) -> str:
        body = {"model": self.fleet.model.name, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        with self.context() as ctx, ctx.client(60.0) as client:
            answer = client.post(f"{ctx.fleet.router.url}/v1/completions", json=body)
            assert answer.status_code == 200, answer.text
            return str(answer.json()["choices"][0]["text"])

    @contextlib.contextmanager
    def load(self, seconds: float) -> Iterator[list[Shot]]:
        """Two agents for `seconds`, and until the block ends; the shots once it has ended."""
        shots: list[Shot] = []
        shape = Shape(agents=2, seconds=seconds, tokens=8, deadline=seconds + 180.0)
        with self.context() as ctx:
            running = threading.Thread(target=lambda: shots.extend(asyncio.run(drive(ctx, shape))))
            running.start()
            try:
                yield shots
            finally:
                running.join(seconds + 240.0)
        assert not running.is_alive(), "the load did not end"

    def until(self, check: Any, what: str, within: float = 60.0) -> None:
        end = time.monotonic() + within
        while not check():
            assert time.monotonic() < end, f"not within {within:g} s: {what}"
            time.sleep(0.2)


def make_fleet(folder: Path, lab: Lab, model: Path) -> RealFleet:
    """The fleet file that `init` writes for three hosts, with a second cell and the hosts' Python."""
    h1, h2, h3 = lab.hosts
    hosts = tuple(remote(f"{h.name}={h.address}") for h in (h1, h2))
    folder.mkdir(parents=True)
    path = folder / "fleet.toml"
    init_fleet(path, Wanted("night", str(model), hosts=hosts, drill=True))
    text = path.read_text()
    python = f'runtime = "existing"\npython = {json.dumps(PYTHON)}\n'
    text = text.replace('transport = "ssh"\n', f'transport = "ssh"\n{python}')
    text = text.replace('dtype = "float32"\n', 'dtype = "float32"\npages = 256\n')
    cell = f"""
[hosts.h3]
transport = "ssh"
address = "{h3.address}"
ssh = "h3"
user = "ops"
{python}
[cells.b.engines.prefill-1]
role = "prefill"
host = "h3"
port = 21011
bootstrap_port = 21012
pages = 256
dtype = "float32"

[cells.b.engines.decode-1]
role = "decode"
host = "h3"
port = 21013
pages = 256
dtype = "float32"
"""
    path.write_text(text + cell)
    return RealFleet(folder, lab)
