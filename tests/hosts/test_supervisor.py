"""The supervisor of a fleet over hosts: on the control host where a deploy puts it, and on the machine with
the folder. One legacy-bootstrap pair over h1 and h2 serves the module; the tests follow one another.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.flows.deploy.result import DeployFailed
from tests.hosts.hostpython import PYTHON
from tests.hosts.lab.lab import Lab
from tests.hosts.real_fleet import ROOT, RealFleet, operated

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PLACE = "/srv/operator"
THERE = "/opt/pdctl/night/supervisor/fleet"
HEAL = 600.0
POLICY = """schema = 1
[supervisor]
look_every = 2.0
hosts_every = 5.0
calm = 15.0
settle = 10.0
person_after = 20.0
page = ""
"""


@pytest.fixture(scope="module")
def night(lab: Lab, smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFleet]:
    with operated(tmp_path_factory.mktemp("night"), lab, smollm, cells=1) as fleet:
        fleet.edit('role = "prefill"', 'role = "prefill"\nlegacy_bootstrap = true')
        (fleet.folder / "policy.toml").write_text(POLICY)
        yield fleet


def give_pdctl(night: RealFleet) -> None:
    """As an operator installs it on the control host."""
    h1 = night.lab.hosts[0]
    for part in ("pdctl", "systemd", "profiles"):
        there = h1.root / PLACE.lstrip("/") / part
        shutil.copytree(ROOT / part, there, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    script = f'#!/bin/sh\nPYTHONPATH={PLACE} exec {PYTHON} -m pdctl "$@"\n'
    (h1.root / "usr/local/bin/pdctl").write_text(script)
    h1.sh("chmod 755 /usr/local/bin/pdctl")


def give_key(night: RealFleet) -> None:
    """The control host's own login may log in to every host, itself included."""
    ssh = Path(os.environ["HOME"]) / ".ssh"
    h1 = night.lab.hosts[0]
    h1.sh("install -d -m 700 /root/.ssh")
    for name in ("lab_key", "known_hosts", "config"):
        text = (ssh / name).read_text().replace(f"{ssh}/", "/root/.ssh/")
        (h1.root / "root/.ssh" / name).write_text(text)
    h1.sh("chmod 600 /root/.ssh/lab_key")


def incidents(night: RealFleet) -> list[dict[str, Any]]:
    """As the control host tells them."""
    _, said = night.lab.hosts[0].try_sh(f"pdctl --fleet {THERE} --json incidents 2>/dev/null")
    found: list[dict[str, Any]] = json.loads(said)["incidents"]
    return found


def test_it_is_not_started_where_it_could_not_work(night: RealFleet) -> None:
    night.deploy()
    night.edit("[fleet]\n", "[fleet]\nsupervise = true\n")
    with pytest.raises(ConfigError, match=r"fleet.toml:\d+: fleet.supervise: .* on h1, and there is none"):
        night.changes()
    give_pdctl(night)
    with pytest.raises(DeployFailed) as caught:
        night.deploy()
    assert "would not reach h1, h2" in caught.value.message and caught.value.exit is Exit.FINDINGS
    assert night.ask(), "the cell serves all the same"


def test_a_deploy_starts_it_there_once_and_anew_for_another_policy(night: RealFleet) -> None:
    h1 = night.lab.hosts[0]
    give_key(night)
    night.deploy()
    assert night.changes() == []
    unit = "pdctl-supervisor@night-supervisor.service"
    assert h1.sh(f"systemctl is-active {unit}").strip() == "active"
    assert h1.sh(f"find {THERE} -type f -perm /077 ! -name '*.db*'") == "", "nobody else reads them"
    pid = h1.sh(f"systemctl show -P MainPID {unit}")
    night.edit("calm = 15.0", "calm = 10.0", "policy.toml")
    assert [c for c in night.changes() if "supervisor" in c] == [
        "h1/files/supervisor",
        "h1/unit/supervisor",
        "h1/start/supervisor",
    ]
    night.deploy()
    assert h1.sh(f"systemctl show -P MainPID {unit}") != pid and night.changes() == []


def test_what_it_heals_from_there_is_a_pair_over_two_hosts(night: RealFleet) -> None:
    lives = night.incarnations()
    struck = time.time()
    night.lab.hosts[1].sh("systemctl kill --kill-whom=main -s KILL 'pdctl-decode@night-decode-0.service'")
    night.until(lambda: [i for i in incidents(night) if i["closed"]], "an incident that is over", HEAL)
    (incident,) = incidents(night)
    (done,) = [a for a in incident["actions"] if a["outcome"] != "refused"]
    assert (done["action"], done["outcome"]) == ("co-restart", "done"), incident
    new = night.incarnations()
    assert all(new[name] != lives[name] for name in lives) and night.ask()
    found = incident["opened"] - struck
    print(f"{incident['codes']}: confirmed {found:.1f} s after the fault; {done['detail']}")


def test_without_the_key_it_is_taken_away_and_what_it_saw_is_kept(night: RealFleet) -> None:
    h1 = night.lab.hosts[0]
    night.edit("supervise = true\n", "")
    night.deploy()
    assert "pdctl-supervisor" not in h1.sh("systemctl list-units --all 'pdctl-*' --no-legend")
    left = h1.sh(f"find {THERE} -type f -printf '%f\\n'").split()
    assert "supervisor.db" in left and "token" not in left and "fleet.toml" not in left
    assert night.changes() == []


@contextmanager
def supervised(night: RealFleet) -> Iterator[Path]:
    """In the foreground on this machine; its log."""
    log = night.folder / "supervise.log"
    argv = [sys.executable, "-m", "pdctl", "--fleet", str(night.folder), "supervise"]
    with open(log, "wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, cwd=ROOT)
    try:
        night.until(lambda: "looks after" in log.read_text(), "it to look", 120.0)
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def test_a_host_that_it_is_cut_off_from_is_not_acted_on(night: RealFleet) -> None:
    """The hosts see one another and requests are served all the while; the supervisor alone does not."""
    lives = night.incarnations()
    with supervised(night) as log:
        night.lab.net.cut("ctl", "h2")
        try:
            time.sleep(150.0)  # more than twice what a frozen engine is confirmed after
        finally:
            night.lab.net.heal()
        assert "restart" not in log.read_text(), log.read_text()
        night.until(lambda: night.incarnations() == lives, "both to be seen again", 60.0)
        assert night.ask()
