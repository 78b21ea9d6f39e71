"""systemd units on real hosts: what each ending looks like, and that the files are what pdctl wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.errors import PdctlError
from pdctl.units.spec import UnitStatus
from tests.hosts.lab.host import LabHost
from tests.hosts.lab.lab import Lab
from tests.hosts.unit_bench import FAILS, SERVES, UnitBench

WAYS = {"root": ("root", "system"), "sudo": ("ops", "system"), "user": ("dev", "user")}
IGNORES = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
tell(f"READY=1\\nSTATUS={child.pid}")
time.sleep(600)
"""


ACTS = """
asked = [*sys.argv[1:], "sh", "-c", "touch /etc/systemd/system/zz && rm /etc/systemd/system/zz && id -un"]
done = subprocess.run(asked, capture_output=True, text=True)
tell(f"READY=1\\nSTATUS={(done.stdout + done.stderr).strip()}")
time.sleep(600)
"""


@pytest.fixture(scope="module", autouse=True)
def nobodys(lab: Lab) -> None:
    """What fleets of other files have left of their unit files, in the same session's hosts, is gone."""
    for host in lab.hosts:
        host.sh(
            "find /etc/systemd/system /home/*/.config/systemd/user -name '*pdctl*' -exec rm -rf {} + "
            "2>/dev/null; systemctl daemon-reload"
        )


@pytest.fixture
def bench(hosts: list[LabHost], home: Path, request: pytest.FixtureRequest) -> Iterator[UnitBench]:
    """On h1 as root, or as the parameter says."""
    login, scope = WAYS[getattr(request, "param", "root")]
    if scope == "user":
        hosts[0].sh(f"loginctl enable-linger {login}")
    made = UnitBench(hosts[0], login, scope)
    yield made
    made.clear()


every_way = pytest.mark.parametrize("bench", WAYS, indirect=True)
# The same, with the third way left to the slow tests.
most_ways = pytest.mark.parametrize(
    "bench", ["root", "user", pytest.param("sudo", marks=pytest.mark.slow)], indirect=True
)
each_scope = pytest.mark.parametrize("bench", ["root", "user"], indirect=True)
# For what takes long and is systemd's own doing in both scopes.
system_scope = pytest.mark.parametrize(
    "bench", ["root", pytest.param("user", marks=pytest.mark.slow)], indirect=True
)


@every_way
def test_a_unit_lives_and_leaves_nothing(bench: UnitBench) -> None:
    spec = bench.install("decode-0", "print('greeting is', os.environ['GREETING'])\n" + SERVES)
    assert bench.units.specs() == {"decode-0": spec}
    assert bench.units.status()["decode-0"] == UnitStatus("decode-0", "inactive", "never started")
    before = time.time()
    started = bench.units.start("decode-0")
    assert started.pid is not None and started.inputs == "digest-1"
    status = bench.until("decode-0", lambda s: s.state == "active" and s.status)
    assert (status.pid, status.status, status.started_by) == (started.pid, "all fine", "pdctl")
    assert status.started_at is not None and abs(status.started_at - before) < 30.0
    assert bench.units.start("decode-0").pid == status.pid
    user, flags = bench.host.sh(
        f"stat -c %U /proc/{status.pid}; grep NoNewPrivs /proc/{status.pid}/status"
    ).split("\n", 1)
    assert (user, flags.split()) == (bench.login, ["NoNewPrivs:", "1"])
    assert 'greeting is hello "you" \\ there' in bench.units.logs("decode-0")
    assert bench.units.stop("decode-0") == UnitStatus("decode-0", "inactive", "stopped")
    assert not bench.alive(status.pid)
    bench.units.remove("decode-0")
    assert bench.units.status() == {}
    assert bench.files() == []
    assert bench.host.sh(
        f"ls {bench.paths.root}/units {bench.paths.root}/env {bench.paths.root}/run -A"
    ).split() == [f"{bench.paths.root}/env:", f"{bench.paths.root}/run:", f"{bench.paths.root}/units:"]


@most_ways
def test_files_belong_to_the_login_and_specs_to_nobody_else(bench: UnitBench) -> None:
    bench.serving("decode-0")
    for path in (bench.paths.unit("decode-0"), bench.paths.run("decode-0")):
        assert bench.host.sh(f"stat -c '%U %a' {path}").split() == [bench.login, "600"]


@each_scope
def test_a_killed_process_is_started_again(bench: UnitBench) -> None:
    first = bench.serving("decode-0")
    bench.host.sh(f"kill -9 {first.pid}")
    status = bench.until("decode-0", lambda s: s.state == "active" and s.pid != first.pid)
    assert (status.restarts, status.exit_signal, status.exit_code) == (1, 9, None)
    assert status.started_by == "supervisor"


@system_scope
def test_a_frozen_process_is_ended_by_the_watchdog(bench: UnitBench) -> None:
    first = bench.serving("decode-0", watchdog=1.0, restart_delay=2.0)
    bench.host.sh(f"kill -STOP {first.pid}")
    status = bench.until("decode-0", lambda s: s.state == "restarting")
    assert status.reason.startswith("watchdog")
    again = bench.until("decode-0", lambda s: s.state == "active")
    assert (again.restarts, again.exit_signal) == (1, 6)
    assert not bench.alive(first.pid)


@system_scope
def test_a_crash_loop_ends_failed_and_a_start_tries_anew(bench: UnitBench) -> None:
    spec = bench.install("decode-0", FAILS, "7", burst=3)
    bench.units.start("decode-0")
    status = bench.until("decode-0", lambda s: s.state == "failed")
    assert status.reason == "start-limit: 3 failures in a row, the last one: exit code 7"
    assert (status.exit_code, status.pid) == (7, None)
    assert bench.units.stop("decode-0").state == "failed"
    bench.transport.put(b"import time; time.sleep(600)", spec.argv[2])
    assert bench.units.start("decode-0").state == "activating"


@system_scope
def test_what_a_restart_cannot_cure_fails_at_once(bench: UnitBench) -> None:
    bench.install("decode-0", FAILS, "2")
    bench.units.start("decode-0")
    status = bench.until("decode-0", lambda s: s.state == "failed")
    assert (status.exit_code, status.restarts) == (2, 0)
    assert status.reason == "exit code 2, which a restart cannot cure"


def test_a_program_that_is_not_there_is_said_so(bench: UnitBench) -> None:
    spec = bench.spec("decode-0", SERVES)
    bench.units.install(replace(spec, argv=("/opt/nowhere/python", "-m", "engine"), burst=2))
    bench.units.start("decode-0")
    status = bench.until("decode-0", lambda s: s.state == "failed")
    assert "its program cannot be executed" in status.reason


@system_scope
def test_a_stop_ends_children_and_what_ignores_it(bench: UnitBench) -> None:
    bench.install("decode-0", IGNORES, stop_timeout=1.0)
    bench.units.start("decode-0")
    running = bench.until("decode-0", lambda s: s.state == "active")
    status = bench.units.stop("decode-0")
    assert status.state == "inactive" and "killed" in status.reason
    assert not bench.alive(running.pid) and not bench.alive(int(running.status))


@each_scope
def test_a_stop_at_once_waits_for_nothing_and_brings_nothing_back(bench: UnitBench) -> None:
    """By default its stop would take a minute, and one that is killed is started again."""
    bench.install("decode-0", IGNORES, stop_timeout=60.0)
    bench.units.start("decode-0")
    running = bench.until("decode-0", lambda s: s.state == "active")
    began = time.monotonic()
    status = bench.units.stop("decode-0", at_once=True)
    assert status.state == "inactive" and time.monotonic() - began < 55
    assert not bench.alive(running.pid) and not bench.alive(int(running.status))
    assert bench.units.status()["decode-0"].pid is None


def test_a_long_drain_is_waited_for(bench: UnitBench) -> None:
    """Longer than one call of the host tool: the units of a real fleet drain for half a minute."""
    slow = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(10), sys.exit(0)))\n" + SERVES
    bench.install("decode-0", slow, stop_timeout=30.0)
    bench.units.start("decode-0")
    first = bench.until("decode-0", lambda s: s.state == "active")
    bench.spec("decode-0", SERVES)  # the next life ends at once
    second = bench.units.restart("decode-0")
    assert second.pid not in (None, first.pid) and second.started_by == "pdctl"


@most_ways
def test_a_host_that_reboots_brings_back_what_was_started(bench: UnitBench, lab: Lab) -> None:
    bench.serving("decode-0")
    bench.serving("decode-1")
    bench.units.stop("decode-1")
    lab.stop("h1")
    lab.boot("h1")
    status = bench.until("decode-0", lambda s: s.state == "active")
    assert (status.started_by, status.restarts) == ("boot", 0)
    assert bench.units.status(["decode-1"])["decode-1"].state == "inactive"


def test_a_restart_by_hand_is_told_from_one_of_pdctl(bench: UnitBench) -> None:
    bench.serving("decode-0")
    bench.systemctl("restart pdctl-decode@demo-decode-0.service")
    assert bench.units.status()["decode-0"].started_by == "hand"
    bench.units.restart("decode-0")
    assert bench.units.status()["decode-0"].started_by == "pdctl"


@each_scope
def test_a_cell_is_stopped_and_started_by_its_target(bench: UnitBench) -> None:
    first = {
        name: bench.serving(name, role=role).pid
        for name, role in (("prefill-0", "prefill"), ("decode-0", "decode"))
    }
    bench.serving("router", role="router", cell="")
    bench.serving("other", cell="b")
    target = "pdctl-cell@demo-a.target"
    bench.systemctl(f"stop {target}")
    states = {name: status.state for name, status in bench.units.status().items()}
    assert states == {"prefill-0": "inactive", "decode-0": "inactive", "router": "active", "other": "active"}
    bench.systemctl(f"start {target}")
    second = {name: bench.until(name, lambda s: s.state == "active").pid for name in first}
    bench.systemctl(f"restart {target}")
    third = {name: bench.until(name, lambda s: s.state == "active").pid for name in first}
    for name in first:
        assert len({first[name], second[name], third[name]}) == 3


@each_scope
def test_the_journal_is_read_and_followed(bench: UnitBench) -> None:
    name = f"said-{bench.login}"  # the host's journal keeps what other tests' units said
    bench.install(name, "for n in range(5): print('line', n)\n" + SERVES)
    bench.install("another", "print('another unit')\n" + SERVES)
    assert bench.units.logs(name) == []
    start = bench.units.log_since(name)
    assert start.text == "" and start.cursor
    bench.units.start("another")
    bench.units.start(name)
    bench.until(name, lambda s: "serving" in bench.units.logs(name))
    part = bench.units.log_since(name, start.cursor)
    said = [line for line in part.text.splitlines() if line.startswith("line")]
    assert said == [f"line {n}" for n in range(5)] and "another" not in part.text
    assert bench.units.logs(name, 1)[0] in part.text
    seen = bench.units.log_since(name, lines=3)
    assert len(seen.text.splitlines()) == 3
    bench.units.stop(name)
    rest = bench.units.log_since(name, seen.cursor)
    assert "line 0" not in rest.text and "Stopped" in rest.text
    assert bench.units.log_since(name, rest.cursor).text == ""


def test_a_journal_that_users_cannot_read_is_said_so(hosts: list[LabHost], home: Path) -> None:
    hosts[1].sh("loginctl enable-linger dev; journalctl --relinquish-var; mv /var/log/journal /var/log/kept")
    bench = UnitBench(hosts[1], "dev", "user")
    try:
        bench.serving("decode-0")
        assert "root must make /var/log/journal" in bench.units.logs("decode-0")[0]
        with pytest.raises(PdctlError, match="there is no journal of pdctl-decode@demo-decode-0"):
            bench.units.log_since("decode-0")
    finally:
        bench.clear()
        hosts[1].sh("mv /var/log/kept /var/log/journal; journalctl --flush")


@each_scope
def test_files_changed_by_hand_are_seen_and_set_right(bench: UnitBench) -> None:
    spec = bench.install("decode-0", SERVES)
    unit = "pdctl-decode@demo-decode-0.service"
    drop_in = f"{unit}.d/pdctl.conf"
    there, written = bench.folder, "is not as pdctl writes it"
    template, override = "pdctl-decode@.service", f"{unit}.d/override.conf"
    nice = bench.systemctl(f"show -P Nice {unit}")
    changes = {
        f"echo TasksMax=7 >>{there}/{drop_in}": f"{drop_in} {written}",
        f"echo '# mine' >>{there}/{template}": f"{template} {written}",
        f"rm {there}/pdctl-cell@.target": "pdctl-cell@.target is not there",
        f"printf '[Service]\\nNice=5\\n' >{there}/{override}": f"{override} is not pdctl's",
        f"cp {there}/{template} {there}/{unit}": f"{unit} is not pdctl's",
    }
    for script, said in changes.items():
        bench.host.sh(script)
        assert bench.units.installed("decode-0") is None
        assert [line for line in bench.units.drift("decode-0") if line.what.startswith(said)] != [], said
        bench.units.install(spec)
        assert bench.units.installed("decode-0") == spec, script
    assert "Nice=5" in bench.host.sh(f"cat {bench.folder}/{unit}.d/override.conf.set-aside")
    assert bench.systemctl(f"show -P Nice {unit}") == nice


def test_a_damaged_spec_is_as_good_as_none_and_its_unit_can_be_stopped(bench: UnitBench) -> None:
    status = bench.serving("decode-0")
    bench.transport.put(b'{"half":', bench.paths.unit("decode-0"), 0o600)
    assert bench.units.specs() == {}
    assert bench.units.status()["decode-0"].pid == status.pid
    assert bench.units.stop("decode-0").state == "inactive"


def test_an_engine_whose_role_changed_runs_once(bench: UnitBench) -> None:
    old = bench.serving("engine-0", role="decode")
    bench.install("engine-0", SERVES, role="prefill", cell="b")
    assert not bench.alive(old.pid)
    assert not [path for path in bench.files() if "decode" in path or "demo-a" in path]


def test_two_fleets_share_a_host_but_no_unit(bench: UnitBench) -> None:
    bench.serving("decode-0")
    other = UnitBench(bench.host, "root", "system", "demo-decode")
    other.serving("1")
    with pytest.raises(PdctlError, match=r"is another fleet's already .fleet at /opt/pdctl/demo-root-system"):
        other.install("0", SERVES)  # demo-decode-0, here as there
    assert set(other.units.status()) == {"1"} and set(bench.units.status()) == {"decode-0"}
    other.clear()
    assert bench.units.is_active("decode-0") and bench.units.drift("decode-0") == []


def test_who_may_not_linger_is_told_what_root_must_run(hosts: list[LabHost], home: Path) -> None:
    hosts[1].sh("loginctl disable-linger dev")
    bench = UnitBench(hosts[1], "dev", "user")
    assert bench.units.short_lived() == "the login does not linger"
    for act in (bench.units.outlive, lambda: bench.install("decode-0", SERVES)):
        with pytest.raises(PdctlError, match="root must run `loginctl enable-linger dev` once"):
            act()
    hosts[1].sh("loginctl enable-linger dev")
    bench.units.specs()
    assert bench.units.short_lived() == ""


def test_numa_binds_memory_and_cpus(bench: UnitBench) -> None:
    status = bench.serving("decode-0", numa=0)
    assert "bind:0" in bench.host.sh(f"cat /proc/{status.pid}/numa_maps")


def stated(role: str) -> list[float]:
    """The row of docs/operations.md: as a user, as root, in a user's own manager."""
    rows = (Path(__file__).parents[2] / "docs/operations.md").read_text().splitlines()
    row = next(r for r in rows if r.startswith("| `pdctl-") and f"`pdctl-{role}@`" in r)
    return [float(cell) for cell in row.strip("|").split("|")[1:]]


@most_ways
def test_exposure_is_not_above_what_the_docs_state(bench: UnitBench) -> None:
    for role in ("prefill", "decode", "router"):
        bench.install("x", SERVES, role=role)
        wanted = stated(role)[["ops", "root", "dev"].index(bench.login)]
        user = "" if bench.scope == "system" else "--user"
        said = bench.shell(f"systemd-analyze {user} security --no-pager pdctl-{role}@demo-x.service")
        assert float(said.rpartition("exposure level for")[2].split()[1]) <= wanted, said


@pytest.mark.parametrize("bench", ["root", "sudo"], indirect=True)
def test_a_supervisor_may_do_as_root_what_a_deploy_may(bench: UnitBench) -> None:
    """Some of systemd's sandbox takes sudo away from a unit of a plain user, without its name saying so."""
    sudo = [] if bench.login == "root" else ["sudo", "-n"]
    bench.install("supervisor", ACTS, *sudo, role="supervisor", cell="")
    bench.units.start("supervisor")
    assert bench.until("supervisor", lambda s: s.state == "active").status == "root"


@each_scope
def test_systemd_knows_every_line_of_every_unit(bench: UnitBench) -> None:
    user = "" if bench.scope == "system" else "--user"
    for role in ("prefill", "decode", "router", "supervisor"):
        bench.install("x", SERVES, role=role, cell="")
        said = bench.shell(f"systemd-analyze {user} verify pdctl-{role}@demo-x.service 2>&1 || true")
        assert "pdctl" not in said, said
