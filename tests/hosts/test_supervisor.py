"""The supervisor of a fleet over hosts: on the control host where a deploy puts it, and beside it one on the
machine with the folder. One legacy-bootstrap pair over h1 and h2 serves the module; tests follow one another.
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
from tests.hosts.lab.host import LabHost
from tests.hosts.lab.lab import Lab
from tests.hosts.real_fleet import ROOT, RealFleet, operated

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PLACE = "/srv/operator"
UNIT = "pdctl-supervisor@night-supervisor.service"
PREFILL = "systemctl show -P MainPID pdctl-prefill@night-prefill-0.service"
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


def give_pdctl(host: LabHost) -> None:
    """As an operator installs it on a control host."""
    for part in ("pdctl", "systemd", "profiles"):
        there = host.root / PLACE.lstrip("/") / part
        shutil.copytree(ROOT / part, there, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    script = f'#!/bin/sh\nPYTHONPATH={PLACE} exec {PYTHON} -m pdctl "$@"\n'
    (host.root / "usr/local/bin/pdctl").write_text(script)
    host.sh("chmod 755 /usr/local/bin/pdctl")


def give_key(host: LabHost) -> None:
    """Its own login may log in to every host, itself included."""
    ssh = Path(os.environ["HOME"]) / ".ssh"
    host.sh("install -d -m 700 /root/.ssh")
    for name in ("lab_key", "known_hosts", "config"):
        text = (ssh / name).read_text().replace(f"{ssh}/", "/root/.ssh/")
        (host.root / "root/.ssh" / name).write_text(text)
    host.sh("chmod 600 /root/.ssh/lab_key")


def incidents(host: LabHost) -> list[dict[str, Any]]:
    """As the control host tells them."""
    _, said = host.try_sh(f"pdctl --fleet {THERE} --json incidents 2>/dev/null")
    found: list[dict[str, Any]] = json.loads(said)["incidents"]
    return found


def status(host: LabHost) -> str:
    """What it says of itself to systemd."""
    return host.sh(f"systemctl show -P StatusText {UNIT}").strip()


def journal(host: LabHost) -> str:
    return host.sh(f"journalctl -u {UNIT} -o cat --no-pager")


def test_it_is_not_started_where_it_could_not_work(night: RealFleet) -> None:
    night.deploy()
    night.edit("[fleet]\n", "[fleet]\nsupervise = true\n")
    with pytest.raises(ConfigError, match=r"fleet.toml:\d+: fleet.supervise: .* on h1, and there is none"):
        night.changes()
    give_pdctl(night.lab.hosts[0])
    with pytest.raises(DeployFailed) as caught:
        night.deploy()
    assert "would not reach h1, h2" in caught.value.message and caught.value.exit is Exit.FINDINGS
    assert night.ask(), "the cell serves all the same"


def test_a_deploy_starts_it_there_once_and_anew_for_another_policy(night: RealFleet) -> None:
    h1 = night.lab.hosts[0]
    give_key(h1)
    night.deploy()
    assert night.changes() == []
    assert h1.sh(f"systemctl is-active {UNIT}").strip() == "active"
    assert h1.sh(f"find {THERE} -type f -perm /077 ! -name '*.db*'") == "", "nobody else reads them"
    pid = h1.sh(f"systemctl show -P MainPID {UNIT}")
    night.edit("calm = 15.0", "calm = 10.0", "policy.toml")
    assert [c for c in night.changes() if "supervisor" in c] == [
        "h1/files/supervisor",
        "h1/unit/supervisor",
        "h1/start/supervisor",
    ]
    night.deploy()
    assert h1.sh(f"systemctl show -P MainPID {UNIT}") != pid and night.changes() == []


def test_what_it_heals_from_there_is_a_pair_over_two_hosts(night: RealFleet) -> None:
    """Not while a person has paused it from here."""
    h1, h2 = night.lab.hosts[:2]
    lives, pid = night.incarnations(), h1.sh(PREFILL)
    night.done("pause")
    struck = time.time()
    h2.sh("systemctl kill --kill-whom=main -s KILL 'pdctl-decode@night-decode-0.service'")
    night.until(lambda: incidents(h1), "the wedge is found", 120.0)
    time.sleep(20.0)  # when it is due: confirmed for 10 s
    assert h1.sh(PREFILL) == pid and "paused" in status(h1)
    night.done("resume")
    night.until(lambda: [i for i in incidents(h1) if i["closed"]], "an incident that is over", HEAL)
    (incident,) = incidents(h1)
    (done,) = [a for a in incident["actions"] if a["outcome"] != "refused"]
    assert (done["action"], done["outcome"]) == ("co-restart", "done"), incident
    new = night.incarnations()
    assert all(new[name] != lives[name] for name in lives) and night.ask()
    found = incident["opened"] - struck
    print(f"{incident['codes']}: confirmed {found:.1f} s after the fault; {done['detail']}")


@contextmanager
def supervised(night: RealFleet) -> Iterator[Path]:
    """Another one in the foreground on this machine; its log."""
    log = night.folder / "supervise.log"
    argv = [sys.executable, "-m", "pdctl", "--fleet", str(night.folder), "supervise"]
    with open(log, "wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, cwd=ROOT)
    try:
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def test_of_two_one_stands_by_and_takes_over_from_one_that_is_frozen(night: RealFleet) -> None:
    """The lease is on the control host, whose process is alive all the while."""
    h1, lives = night.lab.hosts[0], night.incarnations()
    with supervised(night) as log:
        night.until(lambda: "another supervisor acts" in log.read_text(), "it stands by", 60.0)
        began = time.monotonic()
        h1.sh(f"systemctl kill --kill-whom=main -s STOP {UNIT}")
        night.until(lambda: "looks after" in log.read_text(), "it takes over", 150.0)
        print(f"taken over {time.monotonic() - began:.1f} s after the freeze")
        h1.sh(f"systemctl kill --kill-whom=main -s CONT {UNIT}")
        night.until(lambda: "stands by" in status(h1), "the first one stands by", 60.0)
        assert "has lost its lease: stands by" in journal(h1)
    night.until(lambda: "serving" in status(h1), "and takes it back once the other has ended", 60.0)
    assert night.incarnations() == lives and "restart" not in log.read_text()


def test_one_that_is_killed_comes_back_and_touches_nothing(night: RealFleet) -> None:
    h1, lives = night.lab.hosts[0], night.incarnations()
    before, known = journal(h1).count("looks after"), incidents(h1)
    h1.sh(f"systemctl kill --kill-whom=main -s KILL {UNIT}")
    night.until(lambda: journal(h1).count("looks after") > before, "it looks again", 120.0)
    night.until(lambda: "1 serving" in status(h1), "it knows the cell again", 60.0)
    assert night.incarnations() == lives and incidents(h1) == known


def test_another_control_host_without_an_engine_gets_it_and_cut_off_it_does_not_act(night: RealFleet) -> None:
    """The hosts of the pair see one another and requests are served all the while."""
    h1, _, h3 = night.lab.hosts
    table = f'[hosts.h3]\ntransport = "ssh"\nssh = "h3"\naddress = "{h3.address}"\npython = "{PYTHON}"\n'
    night.edit("[hosts.h1]\n", f'{table}runtime = "existing"\n\n[hosts.h1]\n')
    night.edit("supervise = true\n", 'supervise = true\ncontrol = "h3"\n')
    give_pdctl(h3)
    give_key(h3)
    lives = night.incarnations()
    night.deploy()
    assert "pdctl-supervisor" not in h1.sh("systemctl list-units 'pdctl-*' --no-legend"), "never two"
    assert night.changes() == []
    night.until(lambda: "1 serving" in status(h3), "it looks from there", 60.0)
    night.lab.net.cut("h3", "h2")
    try:
        night.until(lambda: "cannot be judged" in status(h3), "it knows that it is cut off", 60.0)
        time.sleep(90.0)  # more than a frozen engine is confirmed after
        assert "cannot be judged" in status(h3) and night.ask()
    finally:
        night.lab.net.heal()
    night.until(lambda: "1 serving" in status(h3), "it sees both again", 90.0)
    assert night.incarnations() == lives and "restart" not in journal(h3)


def test_without_the_key_it_is_taken_away_and_what_it_saw_is_kept(night: RealFleet) -> None:
    h3 = night.lab.hosts[2]
    night.edit("supervise = true\n", "")
    night.deploy()
    assert "pdctl-supervisor" not in h3.sh("systemctl list-units --all 'pdctl-*' --no-legend")
    left = h3.sh(f"find {THERE} -type f -printf '%f\\n'").split()
    assert "supervisor.db" in left and "token" not in left and "fleet.toml" not in left
    assert night.changes() == []
