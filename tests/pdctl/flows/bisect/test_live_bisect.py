"""Bisect on real engines: `pdctl profile bisect` as an operator calls it, on one fleet that serves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pdctl import contracts
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.flows import admin
from pdctl.flows.bisect import recovery, state
from pdctl.flows.context import Context
from pdctl.flows.deploy.planning import plan_deploy
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, init_fleet
from pdctl.remote.journal import Journal
from pdctl.remote.journal_read import list_runs
from pdctl.units.envfile import parse_env

# Fleets of their own, for minutes: `make test-slow`.
pytestmark = pytest.mark.slow

START = 240.0
# All of them harmless by themselves, and deadlines in order.
LIVE = {
    "PD_CONNECT_TIMEOUT": ("decode", "6"),
    "PD_HANDSHAKE_TIMEOUT": ("both", "20"),
    "PD_DECODE_PREALLOC_TIMEOUT": ("decode", "110"),
    "PD_DECODE_TRANSFER_TIMEOUT": ("decode", "110"),
    "PD_PREFILL_INFLIGHT_TIMEOUT": ("prefill", "140"),
    "PD_QUEUE_TIMEOUT": ("both", "320"),
    "PD_DRAIN_TIMEOUT": ("both", "20"),
    "PD_HEARTBEAT_TIMEOUT": ("both", "8"),
    "PD_KV_CHECKSUM": ("decode", "1"),
    "PD_ROUTER_TOTAL_TIMEOUT": ("router", "500"),
    "PD_ROUTER_IDLE_TIMEOUT": ("router", "170"),
    "PD_ROUTER_HOLD_TIMEOUT": ("router", "200"),
    "PD_ROUTER_TRIES": ("router", "4"),
}
FIXED = {
    "PD_START_TIMEOUT": ("both", "800"),
    "PD_RANK_TIMEOUT": ("both", "25"),
    "PD_STEP_TIMEOUT": ("both", "130"),
    "UCX_LOG_LEVEL": ("both", "error"),
    "MALLOC_ARENA_MAX": ("both", "4"),
    "TOKENIZERS_PARALLELISM": ("both", "false"),
    "PYTHONHASHSEED": ("both", "7"),
}
# A load that ends in a second or two.
LOAD = ("--agents", "2", "--rounds", "1", "--seconds", "5", "--tokens", "8", "--context", "192")
# A check that reads what is in force on the running engines.
READS = """
import json, sys, urllib.request
has = {{}}  # variable -> the values of all units
for url in {urls!r}:
    with urllib.request.urlopen(url + "/v1/state", timeout=10) as answer:
        for row in json.load(answer)["timeouts"].values():
            has.setdefault(row["env"], set()).add(row["value"])
{body}
"""


@dataclass
class Fleet:
    ctx: Context

    @property
    def folder(self) -> Path:
        return self.ctx.fleet.dir

    def noon(self, *tables: dict[str, tuple[str, str]], **other: str) -> None:
        """The profile `noon`: default with these values, `other` instead of some."""
        text = 'schema = 1\nname = "noon"\nextends = "default"\n'
        for env, (side, value) in {k: v for t in tables for k, v in t.items()}.items():
            text += f'[values.{env}]\nvalue = "{other.get(env, value)}"\nside = "{side}"\nreason = "noon"\n'
        (self.folder / "profiles" / "noon.toml").write_text(text)

    def reads(self, body: str) -> list[str]:
        """The option with a command that runs `body`, in which `has` is what is in force by variable."""
        script = self.folder / "check.py"
        urls = [unit.url for unit in self.ctx.fleet.units()]
        script.write_text(READS.format(urls=urls, body=body))
        return ["--check-command", f"{sys.executable} -S {script}"]

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "pdctl", "--fleet", str(self.ctx.fleet.path), "--json", *words]

    def bisect(
        self, *words: str, code: Exit = Exit.OK, verb: tuple[str, ...] = (), seconds: float = 280.0
    ) -> dict[str, Any]:
        call = verb or ("profile", "bisect", "default", "noon", "--yes", *words)
        done = subprocess.run(self.argv(*call), capture_output=True, text=True, timeout=seconds)
        assert done.returncode == code, done.stdout + done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        assert contracts.faults("bisect", document) == []
        return document

    def values(self) -> dict[str, Any]:
        """What is installed and what is in force, of every unit."""
        env = self.folder / ".pdctl" / "host" / "local" / "env"
        files = {f.stem: parse_env(f.read_text()) for f in sorted(env.glob("*.env"))}
        return files | {u.url: admin.timeouts(self.ctx, u.url) for u in self.ctx.fleet.units()}


@pytest.fixture(scope="module")
def served(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    path = tmp_path_factory.mktemp("bisect") / "fleet.toml"
    init_fleet(path, Wanted("bisect", str(smollm)))
    with Context(load_fleet(path)) as ctx:
        try:
            with Journal(ctx.fleet.paths.journal, "deploy") as journal:
                apply_deploy(plan_deploy(ctx, START), journal)
            yield Fleet(ctx)
        finally:
            down(ctx)


@pytest.fixture
def fleet(served: Fleet) -> Iterator[Fleet]:
    """Whatever is tried on it, it has its old values again."""
    was = served.values()
    yield served
    assert served.values() == was and not recovery.path(served.ctx.fleet).exists()


def names(document: dict[str, Any]) -> list[list[str]]:
    return [[d["env"] for d in block] for block in document["found"]]


def test_a_deadline_that_is_too_short_is_found_by_the_load(fleet: Fleet) -> None:
    """Live values alone: the load fails, and nothing is restarted."""
    fleet.noon(LIVE, PD_ROUTER_TOTAL_TIMEOUT="0.1")
    document = fleet.bisect(*LOAD)
    assert names(document) == [["PD_ROUTER_TOTAL_TIMEOUT"]] and document["minimal"]
    assert document["tests"] <= document["forecast"]["tests"] == 7
    assert document["restarts"] == document["forecast"]["restarts"] == 0
    assert document["found"][0][0]["bad_at"].startswith("profile noon (")
    assert "router_total_timeout" in json.dumps(document["trials"])
    assert 0.0 < document["error_bound"] <= 0.05


def test_two_values_that_only_together_flip_it_are_reported_together(fleet: Fleet) -> None:
    fleet.noon(LIVE)
    words = fleet.reads('sys.exit(320 in has["PD_QUEUE_TIMEOUT"] and 4 in has["PD_ROUTER_TRIES"])')
    document = fleet.bisect(*words, "--deterministic")
    assert sorted(n for block in names(document) for n in block) == ["PD_QUEUE_TIMEOUT", "PD_ROUTER_TRIES"]
    assert len(document["found"]) == 2 and document["minimal"] and document["restarts"] == 0
    assert "together" in document["summary"]


def test_a_check_that_fails_every_third_time_is_repeated(fleet: Fleet) -> None:
    """The count of runs is in a file, so that the failures come in a fixed pattern."""
    fleet.noon(LIVE)
    count = fleet.folder / "count"
    count.write_text("0")
    body = f"""
if 8 not in has["PD_HEARTBEAT_TIMEOUT"]:
    sys.exit(0)
with open({str(count)!r}, "r+") as file:
    number = int(file.read()) + 1
    file.seek(0)
    file.write(str(number))
sys.exit(number % 3 == 0)
"""
    document = fleet.bisect(*fleet.reads(body))
    assert names(document) == [["PD_HEARTBEAT_TIMEOUT"]]
    assert 0.0 < document["error_bound"] <= 0.05 and f"{document['error_bound']:.2g}" in document["bound"]
    passes: Counter[tuple[str, ...]] = Counter()
    for trial in document["trials"]:
        passes[tuple(trial["values"])] += trial["passed"]
    good = [n for values, n in passes.items() if "PD_HEARTBEAT_TIMEOUT" not in values]
    assert len(good) >= 2 and min(good) >= 9, "enough passes to rule a rate of a third out"


def test_killed_in_the_middle_it_goes_on_by_resume_and_leaves_old_values(fleet: Fleet) -> None:
    fleet.noon(LIVE)
    words = fleet.reads('sys.exit(20 in has["PD_DRAIN_TIMEOUT"])')
    argv = fleet.argv("profile", "bisect", "default", "noon", "--yes", "--deterministic", *words)
    kept = state.path(fleet.ctx.fleet)
    was = fleet.values()
    dying = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60.0
        while not kept.exists() or len(json.loads(kept.read_text())["trials"]) < 2:
            assert dying.poll() is None and time.monotonic() < end
            time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(dying.pid, signal.SIGKILL)
        dying.wait(30)
    assert recovery.path(fleet.ctx.fleet).exists() and fleet.values() != was
    run = next(r for r in list_runs(fleet.ctx.fleet.paths.journal) if r.command.startswith("profile bisect"))
    assert run.state == "died"
    document = fleet.bisect(verb=("resume", run.id))
    assert names(document) == [["PD_DRAIN_TIMEOUT"]] and document["restored"]
    assert document["tests"] <= document["forecast"]["tests"]


def test_plain_resume_puts_back_what_a_dead_bisect_left(fleet: Fleet) -> None:
    ctx = fleet.ctx
    was = fleet.values()
    record = recovery.Record(
        {"router": {"PD_ROUTER_TRIES": recovery.Kept("3", ["3", "4"])}}, {"router": {"router_tries": 3.0}}
    )
    recovery.write(ctx.fleet, record)
    recovery.put_live(ctx, ctx.fleet.unit("router"), {"router_tries": 4.0})
    assert fleet.values() != was
    done = subprocess.run(fleet.argv("resume"), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "router_tries back to 3" in done.stdout, done.stdout + done.stderr


def test_tokens_are_recorded_under_good_and_compared(fleet: Fleet) -> None:
    """No value changes an answer, so noon passes; the router is not asked over an edge."""
    fleet.noon({"PD_ROUTER_TOTAL_TIMEOUT": ("router", "0.1")})
    words = ("--check", "tokens", "--context", "128", "--tokens", "4", "--deterministic")
    document = fleet.bisect(*words, code=Exit.FINDINGS)
    assert document["result"] == "bad_passes"
    said = [t["detail"] for t in document["trials"]]
    assert said == ["5 answers recorded", "5 answers as recorded"]


@pytest.mark.timeout(900)
def test_two_of_twenty_are_found_within_the_announced_restarts(fleet: Fleet) -> None:
    """One can be set live and one takes a co-restart."""
    fleet.noon(LIVE, FIXED)
    words = fleet.reads('sys.exit(4 in has["PD_ROUTER_TRIES"] and 25 in has["PD_RANK_TIMEOUT"])')
    document = fleet.bisect(*words, "--deterministic", seconds=850.0)
    assert sorted(n for block in names(document) for n in block) == ["PD_RANK_TIMEOUT", "PD_ROUTER_TRIES"]
    two = document["forecast"]["two"]
    assert document["minimal"] and document["tests"] <= two["tests"] == 15
    assert 2 <= document["restarts"] <= two["restarts"] <= 16


@pytest.mark.timeout(900)
@pytest.mark.parametrize("culprit", ["PD_ROUTER_TOTAL_TIMEOUT", "PD_RANK_TIMEOUT"])
def test_one_of_twenty_is_found_within_the_announced_restarts(fleet: Fleet, culprit: str) -> None:
    """Seven of them take a co-restart of the cell."""
    load = culprit == "PD_ROUTER_TOTAL_TIMEOUT"
    fleet.noon(LIVE, FIXED, PD_ROUTER_TOTAL_TIMEOUT="0.1" if load else "500")
    words = LOAD if load else fleet.reads('sys.exit(25 in has["PD_RANK_TIMEOUT"])')
    document = fleet.bisect(*words, "--deterministic", seconds=850.0)
    assert names(document) == [[culprit]] and document["minimal"] and len(document["differences"]) == 20
    assert document["tests"] <= document["forecast"]["tests"] == 8
    assert 2 <= document["restarts"] <= document["forecast"]["restarts"] <= 8


@pytest.mark.timeout(900)
def test_a_transport_that_cannot_link_is_found_though_no_mix_with_it_serves(fleet: Fleet) -> None:
    few = {k: FIXED[k] for k in ("MALLOC_ARENA_MAX", "PYTHONHASHSEED")}
    fleet.noon(few, {"UCX_TLS": ("both", "self")})
    document = fleet.bisect(*LOAD, "--deterministic", seconds=850.0)
    assert names(document) == [["UCX_TLS"]] and document["minimal"]
    assert {t["refused"] for t in document["trials"]} & {"start", "serve"}
