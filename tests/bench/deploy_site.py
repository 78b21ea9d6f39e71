"""Two test hosts, a fleet over them, and what a deploy has left there as files for other tools to deploy.

The engines are stand-ins that start at once, so that what is timed is the deploying.
"""

from __future__ import annotations

import compileall
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from pdctl.flows.init import Wanted, init_fleet, remote
from tests.bench.procs import BenchError
from tests.hosts import hostpython
from tests.hosts.conftest import PROJECT
from tests.hosts.lab.host import LabHost
from tests.hosts.lab.lab import Lab
from tests.pdctl.models import model_script

ROOT = "/opt/pdctl/bench"
MODEL = "/srv/model"
PACKAGES = ("pdctl", "engine", "kernels", "profiles", "systemd")
UNIT = {
    "prefill-0": "pdctl-prefill@bench-prefill-0.service",
    "decode-0": "pdctl-decode@bench-decode-0.service",
    "router": "pdctl-router@bench-router.service",
}
PLACE = {"h1": ("prefill-0", "router"), "h2": ("decode-0",)}
EXTRA = "BENCH_EXTRA=1"
PYTHON = "/srv/engine/python"
# Only `-m engine` is the stand-in, and nothing else takes the way through it.
_WRAPPER = f"""#!/bin/sh
case "$1 $2" in
"-m engine") exec {hostpython.PYTHON} /srv/engine/counted.py "$@" ;;
*) exec {hostpython.PYTHON} "$@" ;;
esac
"""
_COUNTED = """
import runpy, sys
sys.path.insert(0, "/srv/engine")
import fake_engine
answer = fake_engine.Handler.do_POST
def counted(self):
    print("POST", self.path, flush=True)
    answer(self)
fake_engine.Handler.do_POST = counted
if sys.argv[3] == "version":
    runpy.run_path("/srv/engine/fake_engine.py", run_name="__main__")
fake_engine.main(sys.argv[3:])
"""
_FILES = f"""
cd /
find {ROOT[1:]}/trees {ROOT[1:]}/env etc/systemd/system/pdctl-* -type f ! -path '*/__pycache__/*' |
sort | while read -r file; do stat -c '%a' "$file"; sha256sum "$file"; done
readlink {ROOT}/current
"""
_CLEAN = f"""
systemctl disable --now {" ".join(UNIT.values())} 2>/dev/null
systemctl stop 'pdctl-*'
rm -rf {ROOT} /etc/systemd/system/pdctl-* /etc/systemd/system/*.wants/pdctl-*
systemctl daemon-reload
systemctl reset-failed
test -z "$(systemctl list-units --no-legend --all 'pdctl-*')"
"""


@dataclass(frozen=True)
class Life:
    """A unit as its host has it: its process, whether that has EXTRA, how many requests it was asked."""

    pid: int
    extra: bool
    asked: int


@dataclass(frozen=True)
class Site:
    """`folder` holds fleet/fleet.toml, code/ (what pdctl runs from) and HOST/ (what the peers deploy);
    `reference` is what `files` was when it was collected."""

    folder: Path
    lab: Lab
    reference: dict[str, str] = field(default_factory=dict)

    @property
    def fleet(self) -> Path:
        return self.folder / "fleet" / "fleet.toml"

    def prepare(self) -> None:
        """Hosts with their interpreter, the fleet file, and code that nobody edits meanwhile."""
        for host in self.lab.hosts:
            hostpython.install(host)
            host.sh(f"mkdir -p /srv/engine && {model_script(MODEL)}")
            fake = PROJECT / "tests/pdctl/flows/fake_engine.py"
            (host.root / "srv/engine/fake_engine.py").write_bytes(fake.read_bytes())
            (host.root / "srv/engine/counted.py").write_text(_COUNTED)
            (host.root / "srv/engine/python").write_text(_WRAPPER)
            host.sh(f"chmod 755 {PYTHON}")
        for package in PACKAGES:
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(PROJECT / package, self.folder / "code" / package, ignore=skip)
        # As an installation does; the peers run from theirs.
        compileall.compile_dir(self.folder / "code", quiet=1)
        hosts = tuple(remote(f"{h.name}={h.address}") for h in self.lab.hosts)
        self.fleet.parent.mkdir()
        init_fleet(self.fleet, Wanted("bench", MODEL, hosts=hosts))
        python = f'transport = "ssh"\nruntime = "existing"\npython = "{PYTHON}"\n'
        self.fleet.write_text(self.fleet.read_text().replace('transport = "ssh"\n', python))

    def extra(self, wanted: bool) -> None:
        """One more variable of the router, in the fleet file and in the env file that the peers deploy."""
        line = 'env = {{ {} = "{}" }}\n'.format(*EXTRA.split("="))
        text = self.fleet.read_text().replace(line, "")
        self.fleet.write_text(text.replace("[router]\n", f"[router]\n{line}") if wanted else text)
        kept = self.folder / ("router.more" if wanted else "router.plain")
        if kept.exists():
            shutil.copy(kept, self.folder / "h1" / "env" / "router.env")

    def collect(self) -> None:
        """What pdctl's first deploy has left: HOST/release.tgz, HOST/env/ and HOST/units/."""

        def others(folder: str, names: list[str]) -> list[str]:
            at_top = folder.endswith("/etc/systemd/system")
            return [name for name in names if at_top and not name.startswith("pdctl-")]

        for host in self.lab.hosts:
            place = self.folder / host.name
            place.mkdir()
            host.sh(f"tar -C {ROOT} -czf /tmp/release.tgz trees releases")
            shutil.move(host.root / "tmp/release.tgz", place / "release.tgz")
            shutil.copytree(host.root / ROOT[1:] / "env", place / "env")
            shutil.copytree(host.root / "etc/systemd/system", place / "units", ignore=others)
        shutil.copy(self.folder / "h1" / "env" / "router.env", self.folder / "router.plain")
        self.reference.update(self.files())

    def collect_extra(self) -> None:
        """The router's env file of pdctl's second deploy; BenchError unless EXTRA is all that it has more."""
        more = self.folder / "router.more"
        shutil.copy(self.lab.hosts[0].root / ROOT[1:] / "env" / "router.env", more)
        plain = (self.folder / "router.plain").read_text().splitlines()
        lines = [line for line in more.read_text().splitlines() if line not in plain]
        if [line.replace('"', "") for line in lines] != [EXTRA]:
            raise BenchError(f"the changed env file of the router differs in {lines}.")

    def release(self, host: str) -> str:
        """The release that is current on a host, by name."""
        there = next(h for h in self.lab.hosts if h.name == host)
        return os.path.basename(os.readlink(there.root / ROOT[1:] / "current"))

    def files(self) -> dict[str, str]:
        """Modes and digests of the release's tree, the env files and the unit files of every host."""
        return {host.name: host.sh(_FILES) for host in self.lab.hosts}

    def clean(self) -> None:
        for host in self.lab.hosts:
            host.sh(_CLEAN)
        self.extra(False)

    def lives(self) -> dict[str, Life]:
        """BenchError when a unit is not active and enabled."""
        found = {}
        for host in self.lab.hosts:
            for name in PLACE[host.name]:
                found[name] = _life(host, name)
        return found


def _life(host: LabHost, name: str) -> Life:
    said = host.sh(f"systemctl show -p ActiveState,UnitFileState,MainPID {UNIT[name]}")
    now = dict(line.split("=", 1) for line in said.splitlines())
    if (now["ActiveState"], now["UnitFileState"]) != ("active", "enabled"):
        raise BenchError(f"{name} is not active and enabled: {now}.")
    pid = int(now["MainPID"])
    environ = host.sh(f"tr '\\0' '\\n' </proc/{pid}/environ").splitlines()
    said = host.sh(f"journalctl --sync && journalctl -q -o cat -b _PID={pid}").splitlines()
    return Life(pid, EXTRA in environ, sum(line.startswith("POST /v1/") for line in said))
