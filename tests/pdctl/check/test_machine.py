"""Preflight of a host itself: each question with a good, a bad and an unknown answer."""

from __future__ import annotations

from typing import Any

import pytest

from pdctl.errors import ConfigError
from pdctl.facts.clock import Clock, apart, at_least, measured, spread
from pdctl.facts.machine import GIB, MIB, Memlock, Python, Room
from pdctl.facts.missing import Missing
from pdctl.facts.model import Model
from pdctl.flows.check.hosts import Launch
from pdctl.flows.check.machine import clock_lines, lines
from pdctl.flows.check.report import Level

PYTHON = "/srv/app/bin/python"
MADE = {"runtime": "index", "python": None}


def test_a_healthy_host_has_no_finding(made: Any) -> None:
    found = list(lines(made.state()))
    assert {line.check for line in found} == {"units", "python", "disk", "shm", "memlock", "model"}
    assert {line.level for line in found} == {Level.OK} and not any(line.fix for line in found)


def test_a_login_that_may_not_become_root_is_found_before_a_deploy(made: Any) -> None:
    refused = ConfigError(
        "sudo_refused", "h1 does not let you become root: a password is required.", "NOPASSWD"
    )
    (line,) = [li for li in lines(made.state(manager=refused)) if li.check == "units"]
    assert (line.level, line.fix) == (Level.FAIL, "NOPASSWD")
    assert line.found == "h1 does not let you become root: a password is required"


@pytest.mark.parametrize(
    ("python", "words"),
    [
        (Missing("/srv/app/bin/python: No such file or directory"), "No such file"),
        (Python(PYTHON, (3, 9, 2), {}), "is 3.9.2"),
        (Python(PYTHON, (3, 11, 2), {"torch": None, "nixl": None, "numpy": "2"}), "lacks torch, nixl"),
    ],
)
def test_a_python_that_cannot_run_engines_fails(made: Any, only: Any, python: Any, words: str) -> None:
    line = only(lines(made.state(pythons={PYTHON: python})), "python")
    assert line.level is Level.FAIL and words in line.found and line.fix


def test_the_python_a_venv_is_made_of_needs_no_libraries(made: Any, only: Any) -> None:
    bare = Python("/usr/bin/python3", (3, 11, 2), {"torch": None})
    state = made.state(table=MADE, pythons={bare.path: bare})
    assert only(lines(state), "python").level is Level.OK


def test_a_release_that_lost_its_python_is_told_beside_the_hosts_own(made: Any) -> None:
    own = Python("/usr/bin/python3", (3, 11, 2), {})
    gone = "/opt/pdctl/t/venvs/1/bin/python"
    state = made.state(table=MADE, pythons={own.path: own, gone: Missing(f"{gone}: No such file")})
    found = [line for line in lines(state) if line.check == "python"]
    assert [line.level for line in found] == [Level.OK, Level.FAIL] and found[1].fix == "pdctl deploy"


def test_a_disk_without_room_for_a_first_release_fails(made: Any, only: Any) -> None:
    small = Room("/opt", 20 * GIB, 2 * GIB, 1 << 20)
    state = made.state(table=MADE, disk=small)
    assert only(lines(state), "disk").level is Level.FAIL
    libraries = {"decode-0": Launch("/opt/pdctl/t/venvs/1/bin/python", {})}
    installed = made.state(table=MADE, disk=small, launches=libraries)
    assert only(lines(installed), "disk").level is Level.OK, "the libraries are there already"
    cuda = made.state(made.engine(device="cuda"), table=MADE, disk=Room("/opt", 20 * GIB, 8 * GIB, None))
    assert "12.0 GiB" in only(lines(cuda), "disk").wanted


def test_full_read_only_and_out_of_inodes_are_told_apart(made: Any, only: Any) -> None:
    full = made.state(disk=Room("/opt/pdctl/t", GIB, 10 * MIB, 1 << 20))
    assert only(lines(full), "disk").level is Level.FAIL
    foreign = made.state(disk=Room("/opt/pdctl/t", GIB, GIB, 1 << 20, writable=False))
    assert "chown" in only(lines(foreign), "disk").fix
    above = made.state(disk=Room("/opt", GIB, GIB, 1 << 20, writable=False))
    assert only(lines(above), "disk").level is Level.OK, "what is above the root is made with sudo"
    inodes = made.state(disk=Room("/opt", GIB, GIB, 12))
    assert only(lines(inodes), "disk").found == "12 inodes free"
    unknown = only(lines(made.state(disk=Missing("df hangs"))), "disk")
    assert unknown.level is Level.SKIP and unknown.found == "not known: df hangs"


def test_a_containers_64_mib_are_enough_for_one_rank_and_not_for_several(made: Any, only: Any) -> None:
    shm = Room("/dev/shm", 64 * MIB, 64 * MIB)
    assert only(lines(made.state(shm=shm)), "shm").level is Level.OK
    assert only(lines(made.state(made.engine(tp=2), shm=shm)), "shm").level is Level.FAIL


def test_locked_memory_matters_where_something_pins(made: Any, only: Any) -> None:
    short = Memlock(8 * MIB, 8 * MIB)
    assert only(lines(made.state(memlock=short)), "memlock").level is Level.OK
    state = made.state(memlock=short, rdma=(made.infiniband(),))
    line = only(lines(state), "memlock")
    assert line.level is Level.FAIL and "mlx5_0:1 pins memory" in line.wanted
    assert (
        only(lines(made.state(memlock=short, rdma=(made.infiniband("DOWN"),))), "memlock").level is Level.OK
    )
    raised = made.replace(state, memlock=Memlock(8 * MIB, None))
    assert only(lines(raised), "memlock").level is Level.OK, (
        "the machine's systemd gives what a unit asks for"
    )
    own = made.replace(raised, machine_units=False)
    assert only(lines(own), "memlock").level is Level.FAIL, "a user's units have the login's limit"


def test_the_limit_of_a_process_that_runs_counts_before_any_other(made: Any, only: Any) -> None:
    state = made.state(
        rdma=(made.infiniband(),),
        memlock=Memlock(None, None),
        facts={"decode-0": made.running(memlock=8 * MIB)},
    )
    assert only(lines(state), "memlock").found == "decode-0 8.0 MiB"


def test_an_absent_model_fails(made: Any, only: Any) -> None:
    state = made.state(model=Model(False), places={"model": "fleet.toml:17"})
    line = only(lines(state), "model")
    assert (line.level, line.fix) == (Level.FAIL, "copy it there, or correct model.path (fleet.toml:17)")


def test_a_damaged_model_fails_where_an_engine_of_ours_would_load_it(made: Any, only: Any) -> None:
    damaged = Model(True, "it has no tokenizer.json")
    line = only(lines(made.state(model=damaged)), "model")
    assert (line.level, line.found) == (Level.FAIL, "it cannot be loaded: it has no tokenizer.json")
    others = made.state(made.engine(kind="vllm", command=["vllm", "serve", "m"]), model=damaged)
    assert only(lines(others), "model").level is Level.OK, "it may read other files"


def test_more_ranks_than_kv_heads_fail_with_their_place(made: Any, only: Any) -> None:
    assert "tp" not in {line.check for line in lines(made.state(made.engine(tp=3)))}
    line = only(lines(made.state(made.engine(tp=4), places={"decode-0": "fleet.toml:40"})), "tp")
    assert (line.level, line.subject) == (Level.FAIL, "decode-0")
    assert (line.found, line.fix) == (
        "tp is 4, and the model has 3 key/value heads",
        "set tp to 3 or less (fleet.toml:40)",
    )


def test_kv_pages_that_no_host_could_hold_fail(made: Any, only: Any) -> None:
    model = Model(True, "", 3, 2 * 30 * 3 * 64)
    fits = made.state(made.engine(pages=50_000), model=model)
    assert "kv" not in {line.check for line in lines(fits)}
    line = only(lines(made.state(made.engine(pages=100_000), model=model)), "kv")
    assert (line.level, line.found) == (Level.FAIL, "decode-0 68.7 GiB")
    assert line.wanted == "KV pages within the 64.0 GiB of memory here"
    half = made.state(made.engine(pages=100_000, dtype="bfloat16"), model=model)
    assert "kv" not in {line.check for line in lines(half)}


def test_a_round_trip_bounds_the_error_of_a_clock() -> None:
    """The host read its clock at any moment of the trip: the truth lies within the error in both cases."""
    for read_at in (100.0, 100.2, 100.4):
        clock = measured(sent=100.0, seconds=0.4, theirs=read_at + 5.0)
        assert abs(clock.offset - 5.0) <= clock.error + 1e-9
    assert at_least(Clock(0.15, 0.2)) == 0.0
    assert at_least(Clock(-2.0, 0.5)) == 1.5
    assert apart(Clock(1.0, 0.1), Clock(-1.0, 0.2)) == Clock(2.0, pytest.approx(0.3))


def test_the_host_that_is_off_is_named_and_not_those_that_agree() -> None:
    clocks = {"h1": Clock(0.0, 0.01), "h2": Clock(-3.0, 0.01), "h3": Clock(0.1, 0.01), "h4": Missing("mute")}
    found = {line.subject: line for line in clock_lines(clocks)}
    levels = {name: line.level for name, line in found.items()}
    assert levels == {"h1": Level.OK, "h2": Level.WARN, "h3": Level.OK, "h4": Level.SKIP}
    assert found["h2"].found == "-3.000 s ± 0.010 s from this machine" and "h2" in found["h2"].fix


def test_this_machine_may_be_the_odd_one_out() -> None:
    clocks = {name: Clock(60.0, 0.01) for name in ("h1", "h2", "h3")}
    found = {line.subject: line for line in clock_lines(clocks)}
    assert found["this machine"].level is Level.FAIL and found["h1"].level is Level.OK


def test_one_host_is_measured_by_this_machine() -> None:
    assert spread({"h1": Clock(-60.0, 0.1)})[0] == "this machine"
    (line,) = clock_lines({"h1": Clock(-60.0, 0.1)})
    assert (line.subject, line.level) == ("h1", Level.FAIL)


def test_a_slow_round_trip_is_no_skew() -> None:
    (line,) = clock_lines({"h1": Clock(1.9, 1.8)})
    assert line.level is Level.OK
