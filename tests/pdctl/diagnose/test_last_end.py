"""What ended an earlier life is no cause of what fails now, and three ends are not three times the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pdctl.adapters.picture import Reach
from pdctl.adapters.signs import TABLE
from pdctl.adapters.traces import HostTraces, Traces
from pdctl.bundle.documents import Documents
from pdctl.bundle.manifest import Manifest, read_manifest
from pdctl.bundle.read import facts_of
from pdctl.diagnose.facts import Facts, HalfWay, Left
from pdctl.diagnose.report import make
from pdctl.diagnose.rule import Finding, Severity
from pdctl.facts.unit import Unit
from pdctl.flows.collect.run import _half_way, _left
from pdctl.flows.recovery.record import Fault, Record, write
from pdctl.remote.journal import Call, Journal
from pdctl.units.spec import NEVER_STARTED

AT = 1_700_000_000.0
BEGUN = "2026-11-30 09:0{0}:00 [keeper] decode-0 started as pid {0}00\n"
RAISED = "2026-11-30 09:0{}:50,000 ERROR stepped\nTraceback (most recent call last):\nRuntimeError: {}\n"
ENDED = "2026-11-30 09:0{}:55 [keeper] decode-0: ended {}\n"
SAME = "no room for 7 pages"


def lives(*ends: tuple[str, str]) -> str:
    """A log of one life for each (exception, how the keeper saw it end)."""
    text = ""
    for number, (raised, how) in enumerate(ends, 1):
        text += BEGUN.format(number) + "all is well\n" * 9
        text += RAISED.format(number, raised) if raised else ""
        text += ENDED.format(number, how) if how else ""
    return text


def found(facts: Facts, code: str) -> list[Finding]:
    return [p.finding for p in make(facts, 1.0).verdict.findings if p.finding.code == code]


def told(log: str, table: str) -> Facts:
    head = 'at = 2026-11-30T09:10:00Z\n[parties.decode-0]\nkind = "bundled"\nrole = "decode"\n'
    return facts_of(Documents("b", {"bundle.toml": head + table, "decode-0.log": log}), AT)


OWN, KILL, RANK, FROZE = "with exit code 70", "by signal 9", "with exit code 71", "with exit code 72"


@pytest.mark.parametrize(
    ("ends", "table", "loops"),
    [
        ([(SAME, OWN)] * 4, "exit = 70\nrestarts = 3", True),
        ([(SAME, OWN)] * 2, "exit = 70\nrestarts = 35", True),  # the log shows the last two of many
        ([(SAME, OWN)] * 3 + [(SAME, "")], 'state = "running"\nhealth = "refused"\nrestarts = 3', True),
        ([(SAME, OWN)], "exit = 70\nrestarts = 3", False),
        ([(SAME, RANK), ("", KILL), ("", FROZE)], "exit = 72\nrestarts = 3", False),
        ([(SAME, RANK), (SAME, KILL), (SAME, FROZE)], "exit = 72\nrestarts = 3", False),
        ([(SAME, OWN)] * 3 + [("", KILL)], "exit = -9\nrestarts = 3", False),  # the last is another
        ([(SAME, OWN)] * 4, "exit = 0\nrestarts = 3", False),
        ([(SAME, OWN)] * 4, "exit = 143\nrestarts = 3", False),
    ],
)
def test_only_the_same_end_of_several_lives_is_the_same(
    ends: list[tuple[str, str]], table: str, loops: bool
) -> None:
    assert bool(found(told(lives(*ends), table), "PD213")) == loops


def test_what_ended_each_of_several_lives_at_once_is_named_by_what_it_lacks() -> None:
    said = "Fatal Python error: init_fs_encoding\nModuleNotFoundError: No module named 'encodings'\n"
    log = "".join(BEGUN.format(n) + said + ENDED.format(n, "with exit code 1") for n in range(1, 5))
    lead = make(told(log, "exit = 1\nrestarts = 3"), 1.0).verdict.findings[0].finding
    assert lead.code == "PD215" and "encodings" in lead.summary


def test_a_unit_that_is_not_wanted_or_was_started_by_hand_is_in_no_loop(scene: Any) -> None:
    log = lives(*[(SAME, OWN)] * 4, ("", ""))
    for wanted, by, loops in ((True, "supervisor", 1), (False, "supervisor", 0), (True, "hand", 0)):
        unit = Unit("decode-0", "running", wanted, 500, 70, 4, AT - 20, AT - 20, started_by=by)
        scene.units["decode-0"] = unit
        events = TABLE.scan(log, "decode-0", "decode-0/log.txt")
        assert len(found(with_traces(scene.facts(), Traces(events=events, restarts=4)), "PD213")) == loops


def with_traces(facts: Facts, traces: Traces, **over: Any) -> Facts:
    engines = tuple(replace(e, traces=traces) if e.name == "decode-0" else e for e in facts.engines)
    return replace(facts, engines=engines, **over)


@pytest.mark.parametrize(
    ("ends", "table", "severity"),
    [
        ([(SAME, OWN)], "exit = 70", Severity.ERROR),
        ([("", KILL), (SAME, OWN)], "exit = 70\nrestarts = 1", Severity.ERROR),
        ([(SAME, OWN), ("", KILL)], "exit = -9\nrestarts = 1", Severity.INFO),
        ([(SAME, OWN), ("", "")], 'state = "frozen"\nhealth = "timed out"\nrestarts = 1', Severity.INFO),
        ([("", KILL), (SAME, "")], 'state = "running"\nhealth = "ok"\nrestarts = 1', None),  # survived
    ],
)
def test_an_exception_counts_for_the_life_that_it_ended(
    ends: list[tuple[str, str]], table: str, severity: Severity | None
) -> None:
    facts = told(lives(*ends), table)
    notes = found(facts, "PD214")
    assert [n.severity for n in notes] == ([] if severity is None else [severity])
    if severity is Severity.INFO:
        assert "earlier life" in notes[0].summary and "ago" in notes[0].summary
        placed = [p for p in make(facts, 1.0).verdict.findings if p.finding.code == "PD214"]
        assert placed[0].caused_by is None and placed[0].finding.role != "effect"


def test_a_log_without_lives_is_told_by_the_start_of_the_process() -> None:
    log = RAISED.format(1, SAME) + "EngineCore died unexpectedly\n"
    now = 'state = "running"\nhealth = "timed out"\nrestarts = 1\nstarted = 2026-11-30T09:0{}:00Z\n'
    assert [f.severity for f in found(told(log, now.format(5)), "PD214")] == [Severity.INFO]
    assert [f.severity for f in found(told(log, now.format(1)), "PD214")] == [Severity.ERROR]


def test_a_kill_of_today_is_not_hidden_by_the_kernels_line_of_yesterday(scene: Any) -> None:
    scene.reach["decode-0"] = Reach.REFUSED
    scene.units["decode-0"] = Unit("decode-0", "failed", True, None, -9, 0, AT - 20)
    line = "Out of memory: Killed process 77 (python) total-vm:1kB, anon-rss:1kB"
    for ago, code in ((86400.0, "PD211"), (25.0, "PD210")):
        events = TABLE.scan(line, "", "hosts/local/dmesg.txt")
        events = tuple(replace(e, at=AT - ago) for e in events)
        assert [e.sign for e in events] == ["kernel.oom_kill"]
        view = replace(scene.facts().hosts[0], traces=HostTraces(events=events))
        facts = with_traces(scene.facts(), Traces(ended=-9), hosts=(view,))
        assert make(facts, 1.0).verdict.findings[0].finding.code == code


def test_a_killed_one_that_is_started_again_in_a_moment_says_so(scene: Any) -> None:
    """Its log ends with the kill until the new life has written its first line."""
    scene.reach["decode-0"] = Reach.REFUSED
    scene.units["decode-0"] = Unit("decode-0", "backoff", True, None, -9, 0, AT - 1)
    lead = make(with_traces(scene.facts(), Traces(ended=-9)), 1.0).verdict.findings[0].finding
    assert lead.code == "PD204" and "will be started again in a moment" in lead.summary


def test_a_crash_of_an_earlier_life_is_not_the_end_of_this_one() -> None:
    crash = BEGUN.format(1) + "Fatal Python error: Segmentation fault\n" + ENDED.format(1, "by signal 11")
    frozen = 'state = "frozen"\nhealth = "timed out"\nrestarts = 1'
    assert found(told(crash, "exit = -11"), "PD212")
    assert not found(told(crash + BEGUN.format(2), frozen), "PD212")


@pytest.mark.parametrize(
    ("log", "exits", "leads", "says"),
    [
        ("Fatal Python error: Segmentation fault\n", 71, "PD212", "(SIGSEGV)"),
        ("Aborted (core dumped)\n", 1, "PD212", "(SIGABRT)"),
        ("/entrypoint.sh: line 3: 77 (core dumped) serve\n", 1, "PD212", "native code."),
        # An interpreter that gives up by itself met no signal.
        (
            "Fatal Python error: init_fs_encoding: failed to get the codec of the filesystem encoding\n"
            "Python runtime state: core initialized\nModuleNotFoundError: No module named 'encodings'\n\n",
            1,
            "PD215",
            "encodings",
        ),
        ("Fatal Python error: _PySys_InitCore: can't initialize sys module\n", 1, "PD201", ""),
    ],
)
def test_a_crash_has_the_signal_that_its_words_name(log: str, exits: int, leads: str, says: str) -> None:
    lead = make(told(log, f"exit = {exits}"), 1.0).verdict.findings[0].finding
    assert lead.code == leads and says in lead.summary


@pytest.mark.parametrize(
    ("how", "table", "leads"),
    [
        ("with exit code 0", "exit = 0", "PD201"),  # somebody stopped the life that healed it
        ("by signal 15", "exit = -15", "PD201"),
        ("by signal 9", "exit = -9", "PD211"),
        ("", 'state = "starting"\nhealth = "refused"', "PD446"),  # not yet healed
    ],
)
def test_a_watchdog_that_ended_an_earlier_life_is_not_the_end_of_the_last(
    how: str, table: str, leads: str
) -> None:
    fired = BEGUN.format(1) + "Watchdog timeout (limit 10s)!\n" + ENDED.format(1, "by signal 6")
    log = fired + BEGUN.format(2) + "all is well\n" + (ENDED.format(2, how) if how else "")
    facts = told(log, table + "\nrestarts = 1")
    assert bool(found(facts, "PD446")) == (leads == "PD446")
    assert make(facts, 1.0).verdict.findings[0].finding.code == leads


def test_an_interrupted_co_restart_leads_by_its_name(scene: Any) -> None:
    scene.reach["decode-0"] = Reach.REFUSED
    scene.units["decode-0"] = Unit("decode-0", "stopped", False, None, 0, 3, AT - 20)
    scene.router |= {"admission": "held", "held": 2, "hold_age_s": 90.0}
    events = TABLE.scan(lives((SAME, RANK), ("", KILL), ("", FROZE)), "decode-0", "decode-0/log.txt")
    traces = Traces(events=events, ended=0, restarts=3)
    facts = with_traces(scene.facts(), traces, half_way=HalfWay("r7k2", "a", "interrupted"))
    verdict = make(facts, 1.0).verdict
    lead = verdict.findings[0].finding
    assert (lead.code, lead.severity, lead.remedy) == ("PD201", Severity.ERROR, "pdctl restart --co a")
    assert "Run r7k2" in lead.summary and "interrupted" in lead.summary and "holds admissions" in lead.summary
    held = [p for p in verdict.findings if p.finding.code == "PD604"]
    assert [p.caused_by for p in held] == [0]
    scene.run = "restart --co a by op@here"
    under_way = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert under_way.severity is Severity.WARNING and "under way" in " ".join(under_way.evidence)
    assert under_way.remedy.startswith("wait for the run"), "what it has is a lock that refuses"


def test_a_link_that_a_run_has_just_cut_is_no_error(scene: Any) -> None:
    """The unit was asked a moment before the run stopped its engine."""
    scene.reach["decode-0"] = Reach.REFUSED
    scene.units["decode-0"] = Unit("decode-0", "running", True, 77, None, 0, AT - 60, AT - 60)
    scene.docs["prefill-0"]["peers"][0] |= {"linked": False, "since_age_s": 0.2, "error": "it was closed"}
    assert make(scene.facts(), 1.0).verdict.status == "cause"
    scene.run = "op@here (pid 9) for 4 s: pdctl restart --co a"
    assert make(scene.facts(), 1.0).verdict.status == "healthy"


def test_the_journal_tells_of_a_co_restart_that_was_not_ended(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    ctx: Any = SimpleNamespace(fleet=SimpleNamespace(paths=SimpleNamespace(journal=journal)))
    assert _half_way(ctx) is None, "there is no journal yet"
    call = Call("restart --co a", ("restart", "--co", "a", "--yes"))
    with pytest.raises(KeyboardInterrupt), Journal(journal, call, "r1"):
        raise KeyboardInterrupt
    half = _half_way(ctx)
    assert half == HalfWay("r1", "a", "interrupted", "restart --co a")
    manifest = Manifest("0.1", (AT - 1.0, AT), 1.0, 1800.0, "", (), (), half_way=half)
    assert read_manifest(manifest.to_json()) == manifest
    with Journal(journal, call, "r2"):
        pass
    assert _half_way(ctx) is None, "a later run has seen to it"
    with pytest.raises(KeyboardInterrupt), Journal(journal, Call("deploy", ("deploy", "--yes")), "r3"):
        raise KeyboardInterrupt
    assert _half_way(ctx) == HalfWay("r3", "", "interrupted", "deploy")


DEPLOY = HalfWay("r9", "", "died", "deploy")


def test_an_interrupted_deploy_is_named_by_what_it_left(scene: Any) -> None:
    """Of a co-restart in it too; a router that it did not come to was never started, and ended in no way."""
    scene.reach["decode-0"] = Reach.REFUSED
    scene.units["decode-0"] = Unit("decode-0", "stopped", False, None, 0, 0, AT - 20)
    scene.router |= {"admission": "held", "held": 2, "hold_age_s": 90.0}
    lead = make(with_traces(scene.facts(), Traces(), half_way=DEPLOY), 1.0).verdict.findings[0].finding
    assert (lead.code, lead.severity, lead.remedy) == ("PD201", Severity.ERROR, "pdctl deploy")
    assert "Run r9 (pdctl deploy) died" in lead.summary and "pdctl resume r9" in " ".join(lead.evidence)

    scene.router |= {"admission": "open", "held": 0, "hold_age_s": None}
    scene.units["decode-0"] = Unit("decode-0", "stopped", False, None, None, 0, None, reason=NEVER_STARTED)
    half = make(with_traces(scene.facts(), Traces(), half_way=DEPLOY), 1.0).verdict.findings[0].finding
    assert (half.code, half.severity, half.remedy) == ("PD201", Severity.ERROR, "pdctl deploy")
    assert half.summary == "Run r9 (pdctl deploy) died: decode-0 was never started."
    alone = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert (alone.severity, alone.summary) == (Severity.WARNING, "decode-0 was never started.")


def test_a_timeout_that_a_dead_run_left_names_the_run(scene: Any) -> None:
    scene.docs["prefill-0"]["timeouts"]["inflight"] |= {"value": 3.0, "source": "admin", "changed_at": AT - 9}
    env = scene.docs["prefill-0"]["timeouts"]["inflight"]["env"]
    scene.expected["prefill-0"] = {env: "120"}
    left = Left("r7k2", "died", "tune-timeout", {"prefill-0": {"inflight": 3.0}})
    for run, record, remedy in (
        ("", left, "pdctl resume"),
        ("", None, "pdctl deploy"),
        ("", replace(left, timeouts={"prefill-0": {"inflight": 4.0}}), "pdctl deploy"),  # set again since
        ("tune-timeout by op@here", left, "pdctl deploy"),  # at work
    ):
        scene.run = run
        facts = replace(scene.facts(), left=record)
        for code in ("PD101", "PD105"):
            (said,) = found(facts, code)
            assert said.remedy == remedy, code
            named = "run r7k2 (pdctl tune-timeout) set it and died" in " ".join(said.evidence)
            assert named == (remedy == "pdctl resume"), code
            assert "r7k2" not in said.summary


@pytest.mark.parametrize(
    ("run", "armed", "remedy"),
    [
        ("", "stall-transfer", "pdctl resume"),
        ("", "lose-want", "pdctl drill disarm prefill-0"),
        ("drill by op@here", "stall-transfer", "pdctl drill disarm prefill-0"),
    ],
)
def test_a_fault_that_a_dead_run_armed_is_put_back_with_all_else(
    scene: Any, run: str, armed: str, remedy: str
) -> None:
    fault = {"name": "stall-transfer", "count": 1, "value": 0.0, "hits": 0}
    scene.docs["prefill-0"]["faults"] = {"enabled": True, "armed": [fault]}
    scene.run = run
    left = Left("r7k2", "died", "tune-timeout --verify", faults={"prefill-0": [armed]})
    (said,) = found(replace(scene.facts(), left=left), "PD606")
    assert said.remedy == remedy
    assert ("run r7k2" in " ".join(said.evidence)) == (remedy == "pdctl resume")


def test_the_recovery_record_tells_what_a_dead_run_left(tmp_path: Path) -> None:
    paths = SimpleNamespace(journal=tmp_path / "journal.db", recovery=tmp_path / "recovery.json")
    ctx: Any = SimpleNamespace(fleet=SimpleNamespace(paths=paths))
    assert _left(ctx) is None, "nothing was left"
    with (
        pytest.raises(KeyboardInterrupt),
        Journal(paths.journal, Call("tune-timeout", ("tune-timeout",)), "r1"),
    ):
        fault = Fault("prefill-0", "stall-transfer")
        write(ctx.fleet, Record(timeouts={"prefill-0": {"inflight": (120.0, 3.0)}}, faults=[fault]))
        raise KeyboardInterrupt
    left = _left(ctx)
    set_, armed = {"prefill-0": {"inflight": 3.0}}, {"prefill-0": ["stall-transfer"]}
    assert left == Left("r1", "interrupted", "tune-timeout", set_, armed)
    with Journal(paths.journal, Call("history", ("history",)), "r2"):
        pass
    assert _left(ctx) == left, "whose it is does not change with later runs"
    manifest = Manifest("0.1", (AT - 1.0, AT), 1.0, 1800.0, "", (), (), left=left)
    assert read_manifest(manifest.to_json()) == manifest
    (tmp_path / "recovery.json").write_text("{")
    assert _left(ctx) is None


def test_a_hold_that_a_run_left_names_the_run(scene: Any) -> None:
    scene.router |= {"admission": "held", "held": 2, "hold_age_s": 24.0}
    lead = make(with_traces(scene.facts(), Traces(), half_way=DEPLOY), 1.0).verdict.findings[0].finding
    assert (lead.code, lead.remedy) == ("PD604", "pdctl resume")
    assert lead.summary.startswith("Run r9 (pdctl deploy) died: the router holds admissions since 24 s")
    scene.run = "deploy by op@here"
    busy = make(with_traces(scene.facts(), Traces(), half_way=DEPLOY), 1.0).verdict.findings[0].finding
    assert "r9" not in busy.summary
