"""PD201: a unit that should run does not."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.picture import Reach
from pdctl.diagnose.facts import EngineView, Facts, HalfWay, RouterView
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import span
from pdctl.facts.missing import known
from pdctl.facts.unit import ENGINE_EXITS, Unit
from pdctl.units.spec import NEVER_STARTED

_START = 120.0  # loading a model may take this long before the port opens


# Rules that say why it ended, or that it does.
_ENDS = (
    "PD206",
    "PD210",
    "PD446",
    "PD214",
    "PD212",
    "PD213",
    "PD217",
    "PD211",
    "PD325",
    "PD225",
    "PD226",
    "PD690",
)
_WORDS = {"failed": "has failed", "stopped": "is stopped", "absent": "was never started"}
# An exit code of another engine says that it ended, not why.
_DOUBTS = (
    Hypothesis("its log's last lines name a reason that no rule knows", "read them, and stderr beside them"),
    Hypothesis(
        "somebody ended it: a person, a probe, the kernel",
        "journalctl -u UNIT or kubectl describe pod, and dmesg, at that minute",
    ),
)


def _remedy(unit: Unit, name: str, held_cell: str, half: HalfWay | None) -> str:
    if held_cell:
        return half.verb if half else f"pdctl restart --co {held_cell}"
    if unit.state in ("absent", "stopped"):
        # After `pdctl down` it is one of many; a deploy starts all of them and proves it.
        return "pdctl deploy"
    return f"pdctl logs {name}" if unit.exit in (2, 73, 74) else f"pdctl restart {name}"


def _held_back(facts: Facts, view: EngineView | RouterView, unit: Unit) -> str:
    """How the router holds back an engine that was stopped on purpose, as words; "" when it does not."""
    router = facts.router_state
    if not known(router) or unit.wanted or not isinstance(view, EngineView):
        return ""
    if router.admission == "held":
        return "the router holds admissions"
    # Cordoned instead of held where other cells serve.
    cordoned = any(e.cordoned for e in router.engines if e.instance == view.name)
    return "the router has cordoned it" if cordoned else ""


def _who(facts: Facts, cell: str, half: HalfWay | None) -> tuple[str, str]:
    """(the run that stopped an engine of the cell, how it ended or goes on), as words."""
    if known(facts.run) and facts.run:
        return "", f"the fleet's lock: {facts.run}; a co-restart may be under way"
    if half is not None:
        return half.words, half.record
    return f"A co-restart of cell {cell} stopped half way", "nothing that runs will go on with it"


def _unended(facts: Facts, cell: str) -> HalfWay | None:
    """The run that left units of the cell as they are; None while another one works."""
    half = facts.half_way
    busy = known(facts.run) and facts.run
    return half if half is not None and not busy and half.concerns(cell) else None


def _asked(facts: Facts, name: str, unit: Unit) -> bool:
    """Somebody says that they stopped it, and it went without an error."""
    told = any(c.what == "stopped" and c.party in ("", name) for c in facts.changes)
    return told and unit.exit in (None, 0, 143, -15)


def _down(rule: Rule, facts: Facts, view: EngineView | RouterView, unit: Unit) -> Finding | None:
    name, at = view.name, facts.at
    age = at - unit.since if unit.since else None
    if unit.state in ("stopped", "absent") and view.reach is Reach.OK:
        return None  # PD205: something answers, so it is not down
    if unit.state in ("failed", "stopped", "absent"):
        fresh = unit.state == "absent" or (unit.state == "stopped" and unit.reason == NEVER_STARTED)
        words = "was never started" if fresh else _WORDS[unit.state]
        ended = [] if fresh else [unit.last_end()]
        since = f" for {span(age)}" if age is not None and not fresh else ""
        tail = f": {ended[0]}" if ended else ""
        asked = [f"HTTP: {view.reach}"] if view.reach is not Reach.NOT_ASKED else []
        evidence = [f"unit state {unit.state}{since}", *ended, *asked]
        if unit.reason:
            evidence.insert(1, unit.reason)
        held = _held_back(facts, view, unit)
        half = _unended(facts, view.member.cell)
        # Stopped on purpose is a person's decision: worth saying, not an emergency.
        severity = Severity.ERROR if unit.wanted else Severity.WARNING
        if _asked(facts, name, unit):
            severity = Severity.INFO
        said = f"{name} {words}{since}{tail}."
        if held:
            run, how = _who(facts, view.member.cell, half)
            evidence += [held, how]
            if run:
                said = f"{run}: {name} is stopped{since} and {held}."
                severity = Severity.ERROR  # nobody decided that it stays so
        elif half is not None and not half.cell and (fresh or (half.state != "failed" and not unit.wanted)):
            evidence.append(half.record)
            said = f"{half.words}: {name} {words}{since}{tail}."
            severity = Severity.ERROR
        remedy = _remedy(unit, name, view.member.cell if held else "", half)
        if held and known(facts.run) and facts.run:
            remedy = "wait for the run that holds the fleet's lock (pdctl lock status)"
        told = view.traces.kind == "bundled" or unit.exit in ENGINE_EXITS
        doubts = _DOUBTS if unit.state == "failed" and unit.exit is not None and not told else ()
        return rule.finding(
            name, said, evidence, remedy, since=unit.since, severity=severity, hypotheses=doubts
        )
    if unit.state in ("running", "starting") and view.reach is Reach.REFUSED:
        started = unit.started_at or unit.since
        young = started is not None and at - started < _START
        runs, pid = (f"runs (pid {unit.pid})", f", pid {unit.pid}") if unit.pid else ("is being started", "")
        said = f"{name} {runs} and listens on no port yet."
        evidence = [f"unit state {unit.state}{pid}", "HTTP: refused"]
        severity = Severity.INFO if young else Severity.ERROR
        return rule.finding(name, said, evidence, f"pdctl logs {name}", severity=severity, since=started)
    return None


@rule("PD201", "engine down", Severity.ERROR, ["units"], echo_of=_ENDS, fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A unit that is meant to run has failed or stopped, or runs without opening its port.

    What it looks like: connections to its port are refused at once. The exit code says why it ended:
    2 a wrong flag, variable or file; 71 a rank died; 72 a rank froze; 73 a port was in use; 74 the model;
    a signal means somebody or the kernel ended it.

    What else it could be: a port that is open and silent is a frozen process (PD202); no reply at all to
    the connect is the host or the network (PD301); one that keeps coming back is a crash loop (PD203).
    One that was stopped on purpose while the router holds admissions, or holds it back, is a co-restart
    that stopped half way: `pdctl history` names the run.

    What to do: read the last lines of its log (`pdctl logs NAME`), mend what the exit code names, and
    `pdctl restart NAME`. Requests on its edges fail at once by name; nothing else needs a restart. After
    a co-restart that stopped half way, `pdctl restart --co CELL` begins from what is true now.
    """
    views: list[EngineView | RouterView] = [*facts.engines]
    if known(facts.router):
        views.append(facts.router)
    for view in views:
        unit = view.member.unit
        found = _down(rule, facts, view, unit) if known(unit) else None
        if found is None and not known(unit) and view.reach is Reach.REFUSED:
            evidence = ["HTTP: refused", f"unit {unit}"]
            found = rule.finding(view.name, f"Nothing listens for {view.name}.", evidence, "pdctl deploy")
        if found:
            yield found
