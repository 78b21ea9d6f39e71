"""A fleet of real engines on test hosts, as an operator has it: a fleet file, profiles, ssh, `pdctl`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
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
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, init_fleet, remote
from pdctl.flows.load.run import Shape, Shot, drive
from pdctl.remote.journal import Journal
from tests.hosts import hostpython
from tests.hosts.hostpython import PYTHON
from tests.hosts.lab.lab import Lab
from tests.hosts.operator_home import make_home

WAIT = 240.0
ROOT = Path(__file__).parents[2]
# Engines and far ends of connections that belong to no unit.
LOOSE = """
for pid in $(pgrep -f '[-]m engine|[u]tf8 -c'); do
  grep -qs pdctl- /proc/$pid/cgroup || { tr '\\0' ' ' </proc/$pid/cmdline; echo; } 2>/dev/null
done
"""
# Of cell b alone.
PROFILE = """
schema = 1
name = "b"
extends = "default"

[values.PD_RANK_TIMEOUT]
value = "20"
side = "both"
reason = "The same as everywhere, until it is tried here."
"""


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

    def pdctl(self, *words: str, release: str = "", dies: str = "") -> subprocess.CompletedProcess[str]:
        """As an operator calls it; `release` and `dies` as in tests/hosts/killed.py."""
        command = [sys.executable, "-m", "tests.hosts.killed", release, dies]
        command += ["--fleet", str(self.folder / "fleet.toml"), *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)

    def done(self, *words: str, release: str = "") -> str:
        """What it printed; it must have ended well."""
        done = self.pdctl(*words, release=release)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def killed(self, dies: str, release: str) -> None:
        """A deploy of `release` that dies there, and what is told of it afterwards."""
        done = self.pdctl("deploy", "--yes", release=release, dies=dies)
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        lock = json.loads(self.done("lock", "status", "--json"))
        assert (lock["state"], lock["holder"]["command"]) == ("stale", "pdctl deploy"), lock
        run = self.last_run()
        assert (run["command"], run["state"]) == ("deploy", "died"), run
        assert run["steps"], "a run that died shows how far it came"

    def last_run(self) -> dict[str, Any]:
        """The newest of `pdctl history`, with its steps."""
        newest = json.loads(self.done("history", "--json", "-n", "1"))["runs"][0]["id"]
        run: dict[str, Any] = json.loads(self.done("history", newest, "--json"))["runs"][0]
        return run

    def incarnations(self) -> dict[str, str]:
        return {engine.name: self.state(engine.name)["incarnation"] for engine in self.fleet.engines()}

    def current(self) -> dict[str, str]:
        """Host -> release that `current` names there."""
        with self.context() as ctx:
            roots = {name: host.root for name, host in ctx.fleet.hosts.items()}
        paths = {h.name: f"{roots[h.name]}/current" for h in self.lab.hosts if h.name in roots}
        return {h.name: h.sh(f"readlink {paths[h.name]}").strip() for h in self.lab.hosts if h.name in paths}

    def clear(self) -> None:
        """Nothing is deployed any more."""
        with self.context() as ctx:
            down(ctx)
            roots = {name: host.root for name, host in ctx.fleet.hosts.items()}
        for host in (h for h in self.lab.hosts if h.name in roots):
            host.sh(f"rm -rf {roots[host.name]}")

    def strays(self) -> dict[str, list[str]]:
        """Host -> half-made files and processes that no unit has, once nothing of pdctl runs."""
        with self.context() as ctx:
            roots = {name: host.root for name, host in ctx.fleet.hosts.items()}
        found = {}
        for host in (h for h in self.lab.hosts if h.name in roots):
            files = host.sh(f"find {roots[host.name]} -name '.?*' -o -name '*.tmp' -o -name '*.new'")
            found[host.name] = [*files.split(), *host.sh(LOOSE).splitlines()]
        return {name: lines for name, lines in found.items() if lines}

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
    def load(self) -> Iterator[list[Shot]]:
        """Two agents from before the block until after it; the shots once it has ended."""
        shots: list[Shot] = []
        shape, over = Shape(agents=2, seconds=2.0, tokens=8, deadline=180.0), threading.Event()

        def run(ctx: Context) -> None:
            while not over.is_set():
                shots.extend(asyncio.run(drive(ctx, shape)).shots)

        with self.context() as ctx:
            running = threading.Thread(target=run, args=[ctx])
            running.start()
            try:
                self.until(lambda: shots or not running.is_alive(), "the first answers")
                yield shots
            finally:
                over.set()
                running.join(240.0)
        assert not running.is_alive(), "the load did not end"

    def until(self, check: Any, what: str, within: float = 60.0) -> None:
        end = time.monotonic() + within
        while not check():
            assert time.monotonic() < end, f"not within {within:g} s: {what}"
            time.sleep(0.2)


def make_fleet(folder: Path, lab: Lab, model: Path, cells: int) -> RealFleet:
    """As `init` writes it for two hosts, with the hosts' own Python and, of two cells, the other on h3."""
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
profile = "b"
port = 21011
bootstrap_port = 21012
pages = 256
dtype = "float32"

[cells.b.engines.decode-1]
role = "decode"
host = "h3"
profile = "b"
port = 21013
pages = 256
dtype = "float32"
"""
    path.write_text(text + cell if cells > 1 else text)
    (folder / "profiles" / "b.toml").write_text(PROFILE)
    return RealFleet(folder, lab)


@contextlib.contextmanager
def operated(folder: Path, lab: Lab, model: Path, cells: int = 2) -> Iterator[RealFleet]:
    """Such a fleet, not deployed yet, and a HOME that can log in to its hosts; nothing is left of it."""
    make_home(folder / "home", lab)
    saved = {name: os.environ.get(name) for name in ("HOME", "SSH_AUTH_SOCK")}
    os.environ["HOME"] = str(folder / "home")
    os.environ.pop("SSH_AUTH_SOCK", None)
    try:
        with lab.inside():
            for host in lab.hosts:
                hostpython.install(host)
            fleet = make_fleet(folder / "fleet", lab, model, cells)
            try:
                yield fleet
            finally:
                lab.restore()
                with fleet.context() as ctx:
                    down(ctx)
    finally:
        os.environ.update({name: value for name, value in saved.items() if value is not None})
