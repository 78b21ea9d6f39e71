"""pdctl on a machine that systemd booted: `auto` drives systemd there, over the local transport."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.hosts.lab.host import LabHost

ROOT = Path(__file__).parents[2]
PLACE = "/srv/operator"
# One unit installed, started, seen active, stopped and removed; what was seen as JSON.
SCRIPT = """
import json, os, sys, time
from pdctl.fleet.model import Host, HostPaths
from pdctl.fleet.schema import HostTable
from pdctl.transport.local import LocalTransport
from pdctl.units.choose import open_units
from pdctl.units.spec import UnitSpec
root = sys.argv[1]
os.makedirs(root + "/env", exist_ok=True)
open(root + "/env/u.env", "w").close()
units = open_units(LocalTransport("here"), HostPaths(root), Host("here", HostTable(), root), "demo")
units.install(UnitSpec("u", (sys.executable, "-c", "import time; time.sleep(600)"), root + "/env/u.env", root,
    root + "/log/u.log", root + "/run/u.json", notify=False, role="router", fleet="demo", stop_timeout=5.0))
pid = units.start("u").pid
while (seen := units.status()["u"]).state != "active":
    time.sleep(0.05)
cgroup = open(f"/proc/{pid}/cgroup").read()
units.stop("u")
units.remove("u")
print(json.dumps({"kind": units.kind, "by": seen.started_by, "cgroup": cgroup, "left": list(units.status())}))
"""


@pytest.mark.parametrize(
    ("user", "kind", "cgroup"),
    [
        ("root", "systemd", "/system.slice/"),
        ("ops", "systemd", "/user@"),
        ("dev", "process", ""),  # does not linger: its units would end with the login
    ],
)
def test_auto_takes_the_systemd_that_there_is(
    hosts: list[LabHost], host_python: str, user: str, kind: str, cgroup: str
) -> None:
    host = hosts[2]
    host.sh("loginctl enable-linger ops; loginctl disable-linger dev")
    for part in ("pdctl", "systemd", "profiles"):
        there = host.root / PLACE.lstrip("/") / part
        shutil.copytree(ROOT / part, there, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (host.root / PLACE.lstrip("/") / "auto.py").write_text(SCRIPT)
    host.sh(f"install -d -o {user} /opt/pdctl/auto-{user}")
    said = host.sh(f"cd {PLACE} && {host_python} -m auto /opt/pdctl/auto-{user}", user)
    seen = json.loads(said.splitlines()[-1])
    assert (seen["kind"], seen["by"], seen["left"]) == (kind, "pdctl", [])
    assert cgroup in seen["cgroup"]
