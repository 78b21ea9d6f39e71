"""Deploy by pdctl, pyinfra and ansible-core: the same steps on the same two hosts, in turn.

Release tree and `current`, token and env files, units, reload, start, /ready of each unit, a request through
the router with its body checked. The peers deploy what pdctl's own deploy has left there. They do less: they
hold no lock, keep no history, ask no release for its version and send no request past the router. ansible
goes on with the connections that its run before has left open.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench import deploy_peers
from tests.bench.deploy_peers import Peers
from tests.bench.deploy_site import Life, Site
from tests.bench.procs import BenchError, say
from tests.bench.stats import percentile, show, spread, table
from tests.hosts import hostpython, needs
from tests.hosts.conftest import BASE
from tests.hosts.lab.lab import Lab
from tests.hosts.lab.shell import LabError
from tests.hosts.operator_home import make_home

SECONDS = 400.0  # after so long no other round is begun
KINDS = ("first", "no-op", "changed")
# The router's env file and the restart that it takes; pdctl's unit names what its process was started with.
CHANGES = {"ansible": 2, "pyinfra": 2, "pdctl": 3}
_IMPORTS = "import pdctl.__main__, pdctl.cli.deploy, pdctl.transport.ssh.transport"
Times = dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Pdctl:
    """pdctl as its user calls it, from the site's copy of the code."""

    site: Site
    env: dict[str, str]

    def deploy(self) -> int:
        words = ["-m", "pdctl", "--fleet", str(self.site.fleet), "deploy", "--yes", "--json"]
        said = json.loads(self._python(*words))
        return int(said["changes"])

    def version(self) -> None:
        self._python("-m", "pdctl", "--version")

    def imports(self) -> None:
        """What a deploy over SSH imports."""
        self._python("-c", _IMPORTS)

    def _python(self, *words: str) -> str:
        return deploy_peers.run([sys.executable, *words], self.env, self.site.folder)


def missing(log_dir: Path) -> str:
    """Why this cannot run here, as one sentence; empty when it can."""
    if reason := needs.missing(BASE):
        return reason
    if not hostpython.bind():
        return "the hosts have Python 3.11 and this is another, whose libraries do not load there."
    try:
        deploy_peers.ensure(log_dir)
    except (BenchError, OSError, subprocess.SubprocessError) as error:
        return str(error)
    return ""


def run(rounds: int, log_dir: Path) -> tuple[str, dict[str, object]]:
    """At most `rounds` of each kind of deploy for each tool; the printed table and the JSON document."""
    if reason := missing(log_dir):
        raise BenchError(reason)
    lab = Lab(BASE, "bdep")
    try:
        lab.down()
        lab.up(2, bind_ro=hostpython.bind())
        # Not below the logs: the path of a control socket has little room.
        with tempfile.TemporaryDirectory(prefix="bdep-") as folder, lab.inside():
            return report(*_measure(Site(Path(folder), lab), rounds))
    except LabError as error:
        raise BenchError(str(error)) from None
    finally:
        lab.down()


def _measure(site: Site, rounds: int) -> tuple[Times, dict[str, list[float]]]:
    """Seconds by tool and kind of deploy; seconds of pdctl's parts."""
    home = site.folder / "home"
    make_home(home, site.lab)
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(site.folder / "code")}
    env.pop("SSH_AUTH_SOCK", None)
    site.prepare()
    pdctl = Pdctl(site, env)
    pdctl.deploy()
    site.collect()
    site.extra(True)
    pdctl.deploy()
    site.collect_extra()
    peers = Peers(site, {k: v for k, v in env.items() if k != "PYTHONPATH"})
    tools = {"pdctl": pdctl.deploy, "pyinfra": peers.pyinfra, "ansible": peers.ansible}
    times: Times = {name: {kind: [] for kind in KINDS} for name in tools}
    parts: dict[str, list[float]] = {"pdctl --version": [], "imports of a deploy": []}
    try:
        until = time.monotonic() + SECONDS
        for number in range(rounds):
            if number and time.monotonic() > until:
                break
            order = list(tools)[number % 3 :] + list(tools)[: number % 3]
            for name in order:
                _round(site, name, tools[name], times[name])
                if name == "pdctl":
                    parts["pdctl --version"].append(_timed(pdctl.version)[0])
                    parts["imports of a deploy"].append(_timed(pdctl.imports)[0])
    finally:
        peers.close()
    return times, parts


def _round(site: Site, name: str, deploy: Callable[[], int], times: dict[str, list[float]]) -> None:
    site.clean()
    before: dict[str, Life] = {}
    for kind in KINDS:
        site.extra(kind == "changed")
        seconds, changes = _timed(deploy)
        after = site.lives()
        if kind != "changed" and site.files() != site.reference:
            raise BenchError(f"{name}, {kind}: not the files that pdctl's first deploy has left.")
        check(f"{name}, {kind}", kind, before, after)
        low, high = (8, 100) if kind == "first" else (CHANGES[name],) * 2 if kind == "changed" else (0, 0)
        if not low <= changes <= high:
            raise BenchError(f"{name}, {kind}: {changes} changes are reported, not {low} to {high}.")
        times[kind].append(seconds)
        say(f"  {name}, {kind}: {seconds:.1f} s")
        before = after


def check(what: str, kind: str, before: dict[str, Life], after: dict[str, Life]) -> None:
    """BenchError unless exactly the right units were started and the router was asked when it was new."""
    new = {unit for unit in after if unit not in before or before[unit].pid != after[unit].pid}
    extra = {unit for unit in after if after[unit].extra}
    started = {"first": set(after), "no-op": set(), "changed": {"router"}}[kind]
    if new != started:
        raise BenchError(f"{what}: {', '.join(sorted(new)) or 'nothing'} was started.")
    if extra != ({"router"} if kind == "changed" else set()):
        raise BenchError(f"{what}: {', '.join(sorted(extra)) or 'nothing'} has the new variable.")
    if not after["router"].asked:
        raise BenchError(f"{what}: no request went through the router.")


def _timed(act: Callable[[], object]) -> tuple[float, int]:
    began = time.perf_counter()
    said = act()
    return time.perf_counter() - began, said if isinstance(said, int) else 0


def report(times: Times, parts: dict[str, list[float]]) -> tuple[str, dict[str, object]]:
    """The ratios are of medians: how many times pdctl is faster. `parts` are seconds of pdctl's own."""
    rows, ratios = [], {}
    for kind in KINDS:
        mid = {name: percentile(times[name][kind], 0.5) for name in times}
        ratios[kind] = {name: mid[name] / mid["pdctl"] for name in ("pyinfra", "ansible")}
        shown = [show(times[name][kind], 1.0, 2) for name in times]
        rows.append([kind, *shown, *(f"{ratio:.1f}" for ratio in ratios[kind].values())])
    head = ["deploy", *(f"{name} s" for name in times), "pyinfra / pdctl", "ansible / pdctl"]
    said = [f"{what} {show(values, 1.0, 2)} s" for what, values in parts.items()]
    text = f"{table(head, rows)}\nof pdctl's seconds, each as a process of its own: {', '.join(said)}"
    document: dict[str, object] = {
        "peers": deploy_peers.PINNED,
        "seconds": {name: {k: spread(v) for k, v in kinds.items()} for name, kinds in times.items()},
        "pdctl_parts_s": {what: spread(values) for what, values in parts.items()},
        "ratios": ratios,
    }
    return text, document
