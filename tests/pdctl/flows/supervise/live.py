"""A fleet of the bundled engine on this machine, with its supervisor, and the ways to wedge it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from pdctl.errors import PdctlError
from pdctl.fleet.load import load_fleet
from pdctl.flows import admin
from pdctl.flows.canary import router_canary
from pdctl.flows.context import Context
from pdctl.flows.deploy.planning import plan_deploy
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, init_fleet
from pdctl.remote.journal import Journal
from pdctl.remote.journal_read import Run, list_runs, read_run
from pdctl.supervisor.incidents import Action, Incident, Incidents

START, HEAL = 300.0, 900.0  # seconds; a machine may be busy with something else
POLICY = """schema = 1
[supervisor]
look_every = 2.0
hosts_every = 10.0
calm = 20.0
settle = 10.0
page = ""
# Many wedges in a row, and each is healed.
[actions.co-restart]
per_hour = 100
backoff = 5.0
{more}
"""


@dataclass
class Ward:
    """`log` is what the supervisor said."""

    folder: Path
    ctx: Context
    threads: list[threading.Thread] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    fault: float = 0.0

    @property
    def log(self) -> str:
        return (self.folder / "supervise.log").read_text()

    def policy(self, more: str = "") -> None:
        (self.folder / "policy.toml").write_text(POLICY.format(more=more))

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """It looks when this begins; ended as a service manager ends it."""
        self.start()
        try:
            yield
        finally:
            self.end(signal.SIGTERM)

    def start(self) -> None:
        env = os.environ | {"NO_COLOR": "1"}
        with open(self.folder / "supervise.log", "wb") as log:
            argv = [sys.executable, "-m", "pdctl", "--fleet", str(self.folder), "supervise"]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env=env)
        wait("the supervisor to look", lambda: "looks after" in self.log, START)

    def end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(HEAL)

    def pdctl(self, *args: str, timeout: float = START) -> str:
        argv = [sys.executable, "-m", "pdctl", "--fleet", str(self.folder), *args]
        done = subprocess.run(argv, text=True, capture_output=True, timeout=timeout)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fails(self, *args: str) -> str:
        """What a command that fails says."""
        argv = [sys.executable, "-m", "pdctl", "--fleet", str(self.folder), *args]
        done = subprocess.run(argv, text=True, capture_output=True, timeout=START)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def send(self, count: int = 1) -> None:
        """Requests through the router, each on a thread of its own; nobody reads the answers."""
        body = {"model": self.ctx.fleet.model.name, "prompt": "Count to three.", "max_tokens": 4}

        def post() -> None:
            with suppress(httpx.HTTPError):
                url = f"{self.ctx.fleet.router.url}/v1/completions"
                httpx.post(url, json=body, timeout=HEAL, trust_env=False)

        for _ in range(count):
            self.threads.append(threading.Thread(target=post, daemon=True))
            self.threads[-1].start()

    def state(self, name: str) -> dict[str, Any]:
        return admin.state(self.ctx, self.ctx.fleet.unit(name).url)

    def lives(self) -> dict[str, str]:
        return {e.name: str(self.state(e.name).get("incarnation")) for e in self.ctx.fleet.engines()}

    def serves(self) -> bool:
        with suppress(PdctlError):
            return router_canary(self.ctx, 10.0) > 0
        return False

    def pid(self, name: str) -> int:
        pid = self.ctx.units("local").status([name])[name].pid
        assert pid is not None
        return pid

    def rank(self, name: str, rank: int) -> int:
        return int(self.state(name)["ranks"][rank]["pid"])

    def strike(self, pid: int, number: signal.Signals) -> None:
        """The fault: one process of an engine is killed or frozen."""
        self.fault = time.time()
        os.kill(pid, number)

    def kill(self, name: str) -> None:
        """As the kernel would; the unit brings it back alone, and its peer was not told."""
        was = self.lives()[name]
        self.strike(self.pid(name), signal.SIGKILL)
        wait(f"{name} to live again", lambda: self.lives()[name] not in (was, "None"), START)

    def arm(self, name: str, fault: str, count: int = 0) -> None:
        self.fault = time.time()
        body = {"name": fault, "armed": True, "count": count}
        admin.post(self.ctx, self.ctx.fleet.unit(name).url, "faults", body, drill=True)

    def alone(self, name: str) -> float:
        """Seconds that the present life of an engine took from its start until it was up."""
        return float(self.state(name)["load_seconds"])

    @property
    def store(self) -> Incidents:
        return Incidents(self.ctx.fleet.paths.supervisor, read_only=True)

    def incidents(self, after: int = 0) -> list[Incident]:
        return [i for i in self.store.recent() if i.id > after]

    def newest(self) -> int:
        return max((i.id for i in self.store.recent()), default=0)

    def actions(self, incident: int) -> list[Action]:
        return self.store.actions(incident)

    def run(self) -> Run:
        """The newest run, with its steps."""
        journal = self.ctx.fleet.paths.journal
        return read_run(journal, list_runs(journal)[0].id)

    def healed(self, after: int) -> Incident:
        """The one incident since, once it is over and requests are served."""
        wait("the incident to be over", lambda: self._over(after), HEAL)
        wait("requests to be served", self.serves, HEAL)
        (incident,) = self.incidents(after)
        return incident

    def _over(self, after: int) -> bool:
        found = self.incidents(after)
        return bool(found) and not any(i.open for i in found)


def wait(what: str, check: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)


@contextmanager
def ward(
    folder: Path, model: Path, legacy: bool = True, tp: int = 1, env: Mapping[str, str] | None = None
) -> Iterator[Ward]:
    """A pair whose prefill keeps stale peers, or does not; `env` and `tp` are of both its engines."""
    path = folder / "fleet.toml"
    init_fleet(path, Wanted("ward", str(model), drill=True, tp=tp))
    text = path.read_text()
    if legacy:
        text = text.replace('role = "prefill"', 'role = "prefill"\nlegacy_bootstrap = true')
    pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in (env or {}).items())
    path.write_text(text.replace('dtype = "float32"', f'dtype = "float32"\nenv = {{ {pairs} }}'))
    with Context(load_fleet(path)) as ctx:
        made = Ward(folder, ctx)
        made.policy()
        try:
            with Journal(ctx.fleet.paths.journal, "deploy") as journal:
                apply_deploy(plan_deploy(ctx, START), journal)
            yield made
        finally:
            made.end(signal.SIGKILL)
            down(ctx)
