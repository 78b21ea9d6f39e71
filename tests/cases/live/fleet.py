"""One local fleet of the bundled engine: its verbs are run as processes, its state is asked over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from pdctl.errors import PdctlError
from pdctl.fleet.load import load_fleet
from pdctl.flows import admin
from pdctl.flows.admission import abort, resume
from pdctl.flows.context import Context
from pdctl.flows.drill import points
from pdctl.units.spec import UnitStatus

MODEL = "smollm2-135m"
START = 300.0  # seconds; a machine may be busy with something else
VERDICT = 60.0
# So few pages that four long answers fill decode.
PAGES = 48


class Wrong(AssertionError):
    """A fault that did not take effect, or a fleet that did not heal."""


@dataclass(frozen=True)
class Said:
    """What one run of `pdctl diagnose --json` said, and the seconds that it took."""

    document: dict[str, Any]
    seconds: float

    @property
    def findings(self) -> list[dict[str, Any]]:
        return list(self.document["findings"])

    @property
    def loud(self) -> list[dict[str, Any]]:
        return [f for f in self.findings if f["severity"] != "info"]


@dataclass
class Fleet:
    """`disk` is the root of its host when that is a file system of its own, else None."""

    folder: Path
    ctx: Context
    disk: Path | None
    _threads: list[threading.Thread] = field(default_factory=list)

    def pdctl(self, *args: str, timeout: float = START, check: bool = True) -> str:
        argv = [sys.executable, "-m", "pdctl", *args]
        env = os.environ | {"NO_COLOR": "1"}
        done = subprocess.run(argv, cwd=self.folder, env=env, text=True, capture_output=True, timeout=timeout)
        if check and done.returncode != 0:
            tail = "; ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
            raise Wrong(f"pdctl {' '.join(args)} exited {done.returncode}: {tail}")
        return done.stdout

    def diagnose(self, *more: str) -> Said:
        began = time.monotonic()
        text = self.pdctl("--json", "diagnose", *more, timeout=VERDICT, check=False)
        document = json.loads(text)
        if "findings" not in document:
            raise Wrong(f"pdctl diagnose gave no verdict: {document}")
        return Said(document, time.monotonic() - began)

    def url(self, name: str) -> str:
        return self.ctx.fleet.unit(name).url

    def state(self, name: str) -> dict[str, Any]:
        """{} while it does not answer."""
        return admin.state(self.ctx, self.url(name))

    def admin(self, name: str, verb: str, **body: object) -> None:
        admin.post(self.ctx, self.url(name), verb, body)

    def unit(self, name: str) -> UnitStatus:
        return self.ctx.units("local").status([name])[name]

    def path(self, kind: str, name: str) -> Path:
        """Its env, unit or log file."""
        return Path(getattr(self.ctx.fleet.host_paths("local"), kind)(name))

    def send(self, count: int = 1, tokens: int = 4) -> None:
        """Requests through the router, each on a thread of its own; nobody reads the answers."""
        body = {"model": MODEL, "prompt": "Count to three.", "max_tokens": tokens, "temperature": 0}
        body["ignore_eos"] = True

        def post() -> None:
            with suppress(httpx.HTTPError):
                httpx.post(f"{self.url('router')}/v1/completions", json=body, timeout=300.0, trust_env=False)

        for _ in range(count):
            self._threads.append(threading.Thread(target=post, daemon=True))
            self._threads[-1].start()

    def requests(self) -> list[dict[str, Any]]:
        try:
            return list(admin.get(self.ctx, self.url("router"), "/v1/requests")["requests"])
        except PdctlError:
            return []

    def wait(self, what: str, check: Callable[[], Any], seconds: float = 60.0) -> Any:
        end = time.monotonic() + seconds
        while not (seen := check()):
            if time.monotonic() > end:
                raise Wrong(f"not within {seconds:g} s: {what}")
            time.sleep(0.2)
        return seen

    def ready(self) -> bool:
        engines = self.state("router").get("engines", [])
        return bool(engines) and all(e["ready"] for e in engines)

    def clear(self) -> None:
        """End what a fault left: armed points, live values, holds, drains, requests."""
        for engine in self.ctx.fleet.engines():
            with suppress(PdctlError):
                points.disarm(self.ctx, engine)
        with suppress(PdctlError):
            resume(self.ctx)
        self.wait("the router counts every engine as ready", self.ready, START)
        for request in self.requests():
            with suppress(PdctlError):
                abort(self.ctx, request["id"])
        self.wait("no request is left", self._empty, 150.0)

    def _empty(self) -> bool:
        states = [self.state(e.name) for e in self.ctx.fleet.engines()]
        return not self.requests() and all(s and not s["requests"] for s in states)

    def restart(self, *names: str) -> None:
        """As an operator would after he read the verdict: it begins a life that was asked for."""
        for name in names:
            self.pdctl("restart", name, "--yes")


def make(folder: Path) -> Fleet:
    """Deployed, and ready. Its host's root is a file system of its own where one can be mounted."""
    run = [sys.executable, "-m", "pdctl", "init", "--local", "--model", MODEL, "--drill"]
    subprocess.run(run, cwd=folder, check=True, capture_output=True, timeout=60)
    path = folder / "fleet.toml"
    text = path.read_text().replace('role = "decode"\n', f'role = "decode"\npages = {PAGES}\n')
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1g,mode=700", "pdctl-cases", str(disk)]
    own = subprocess.run(mount, capture_output=True).returncode == 0
    if own:
        text = text.replace('transport = "local"\n', f'transport = "local"\nroot = "{disk}"\n')
    path.write_text(text)
    fleet = Fleet(folder, Context(load_fleet(path)), disk if own else None)
    try:
        fleet.pdctl("deploy", "--yes", timeout=2 * START)
    except BaseException:
        unmake(fleet)
        raise
    return fleet


def unmake(fleet: Fleet) -> None:
    with suppress(Wrong, subprocess.TimeoutExpired):
        fleet.pdctl("down", "--yes")
    fleet.ctx.__exit__(None, None, None)
    if fleet.disk is not None:
        subprocess.run(["umount", "-l", str(fleet.disk)], capture_output=True)
