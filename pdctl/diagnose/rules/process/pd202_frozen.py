"""PD202: an engine that is there and does nothing."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.picture import Engine, Reach
from pdctl.diagnose.facts import EngineView, Facts, RouterView
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import span
from pdctl.facts.missing import Missing, known
from pdctl.facts.probes.process import SECOND_LOOK
from pdctl.facts.process import Process
from pdctl.facts.unit import PORT_TAKEN, Unit

_BEAT = 5.0  # a rank reports every second
_LOOP = 10.0


def _heal(view: EngineView | RouterView) -> str:
    if isinstance(view, EngineView):
        return f"pdctl restart --co {view.member.cell}"
    return f"pdctl restart {view.name}"


def _stopped(rule: Rule, view: EngineView | RouterView) -> Finding | None:
    process = view.member.process
    if not known(process) or not (process.stopped or process.ran):
        return None
    if not process.stopped:
        return _by_turns(rule, view, process)
    pids = " ".join(map(str, process.stopped))
    which = "it" if process.pid in process.stopped else "a rank of it"
    evidence = [f"process state T (stopped): pid {pids} on {view.member.host}", f"HTTP: {view.reach}"]
    said = f"{view.name} is frozen: {which} was stopped by a signal and has not been continued."
    return rule.finding(view.name, said, evidence, f"kill -CONT {pids}")


def _by_turns(rule: Rule, view: EngineView | RouterView, process: Process) -> Finding:
    """It was stopped when it was looked at, and did not stay so: to continue it once more would not last."""
    pids = " ".join(map(str, process.ran))
    which = "it" if process.pid in process.ran else "a rank of it"
    at = f"process state T (stopped) at the first look, running within {SECOND_LOOK:g} s"
    evidence = [
        f"{at}: pid {pids} on {view.member.host}",
        f"HTTP: {view.reach}",
    ]
    said = f"{view.name} is stopped at times: {which} was stopped by a signal, and went on a moment later."
    tests = [
        Hypothesis("a CPU limiter or a debugger stops it by turns", "ps -eo pid,ppid,user,etime,args"),
        Hypothesis("it was stopped once and has just been continued", f"ps -o pid,stat -p {pids}"),
    ]
    remedy = "end what stops it; kill -CONT would not last"
    return rule.finding(view.name, said, evidence, remedy, severity=Severity.WARNING, hypotheses=tests)


def _foreign(unit: Unit | Missing) -> bool:
    """Whether the port that is open cannot be this unit's: it does not run, or ends because it is taken."""
    if not known(unit):
        return False
    return unit.exit == PORT_TAKEN or unit.state in ("absent", "stopped", "failed", "backoff")


_LOAD = 3.0  # runnable threads a core: everything is late


def _crowded(facts: Facts, name: str) -> str:
    """What says that a host has more to do than it can, "" when nothing does: it did not answer in time
    either, or its load says so.
    """
    host = facts.host(name)
    if host is None:
        return ""
    if isinstance(host.clock, Missing) and "did not answer within" in host.clock.reason:
        return host.clock.reason
    load, cores = host.traces.numbers.get("load1"), host.traces.numbers.get("cores")
    crowded = load is not None and cores is not None and load > _LOAD * cores
    return f"load {load:.0f} on {cores:.0f} cores of {name}" if crowded else ""


def _again(view: EngineView | RouterView) -> str:
    return f"curl -m 30 {view.member.url}/health"


def _silent(rule: Rule, facts: Facts, view: EngineView | RouterView) -> Finding | None:
    if view.reach is not Reach.TIMED_OUT or _foreign(view.member.unit):
        return None
    process = view.member.process
    evidence = [f"HTTP: {view.pair.second.detail}"]
    said = f"{view.name} is frozen: its port is open and nothing answers."
    if crowd := _crowded(facts, view.member.host):
        tests = [
            Hypothesis(
                f"the host is overloaded and {view.name} only late", f"{_again(view)}, when load has gone"
            ),
            Hypothesis(f"{view.name} is wedged", "ps -eo pid,stat,%cpu,wchan,args --sort=-%cpu | head -20"),
        ]
        said = f"{view.name} does not answer in time, on a host that is overloaded."
        return rule.finding(view.name, said, [*evidence, crowd], "", hypotheses=tests)
    if known(process):
        return rule.finding(view.name, said, [*evidence, f"process state: {process.status}"], _heal(view))
    tests = [
        Hypothesis(f"{view.name}'s process is stopped or wedged", "ps -eo pid,stat,wchan,args | grep engine"),
        Hypothesis("the host drops packets after the connect", f"curl -m 5 {view.member.url}/health"),
    ]
    return rule.finding(view.name, said, [*evidence, f"process {process}"], _heal(view), hypotheses=tests)


def _wedged(rule: Rule, view: EngineView, state: Engine) -> Finding | None:
    """It answers, but its leader or a rank does not turn."""
    lines: list[str] = []
    if not view.fresh:
        lines.append(f"its leader last published {span(_age(state))} ago (healthy: under a second)")
    lines += [
        f"rank {r.rank} (pid {r.pid}) was last heard {span(r.heartbeat_age)} ago"
        for r in state.ranks
        if r.heartbeat_age is not None and r.heartbeat_age > _BEAT
    ]
    lines += _silent_inside(view, state)
    progress = state.progress
    busy = sum(state.queues[q].depth for q in ("prefilling", "running", "ready") if q in state.queues)
    if known(progress) and busy and not view.working:
        lines += [
            f"{busy} requests are in batches, no step for {span(idle)}"
            for idle in [max(progress.loop_age, progress.last_step_age or 0.0)]
            if idle > _LOOP
        ]
    if not lines:
        return None
    said = f"{view.name} answers HTTP and makes no progress."
    return rule.finding(view.name, said, lines, _heal(view))


def _silent_inside(view: EngineView, state: Engine) -> list[str]:
    """Of an engine of another kind: what of it does not answer behind an HTTP server that does."""
    unit = view.member.unit
    young = known(unit) and unit.state in ("starting", "stopping")
    return [] if state.kind == "bundled" or young else [f"{view.name}: {why}" for why in state.not_ready]


def _age(state: Engine) -> float | None:
    return state.snapshot_age if known(state.snapshot_age) else None


# Rules that say what it is frozen in.
_CAUSES = (
    "PD301",
    "PD606",
    *(f"PD{n}" for n in range(440, 452) if n != 443),
    "PD680",
    "PD220",
    "PD224",
    "PD715",
    "PD410",
    "PD411",
    "PD412",
)


@rule("PD202", "engine frozen", Severity.ERROR, ["engine.reach"], echo_of=_CAUSES)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A process that exists and does nothing: stopped by a signal, silent on its port, or not stepping.

    What it looks like: the process is listed, its port accepts connections, a status page may even say
    Ready. Its peers lose their links a few seconds later, and requests on its edges end with peer_lost or
    wait for a deadline. Process state T is a SIGSTOP; a silent port with state R or S is a wedged loop.
    A stopped process is watched for a moment: one that ran meanwhile is stopped by turns, as a CPU limiter
    does.

    What else it could be: one long step is no freeze (the step counter and the time inside the step tell);
    a saturated decode makes steps (PD603); a refused connection is a process that is gone (PD201).

    What to do: a stopped process continues with `kill -CONT PID` on its host. pdctl does not run that: who
    stopped it may be at work on it (a debugger, a core dump), and its unit may be about to replace it.
    Otherwise restart its cell with `pdctl restart --co`, which also proves that nothing of the old life is
    left.
    """
    views: list[EngineView | RouterView] = [*facts.engines]
    if known(facts.router):
        views.append(facts.router)
    for view in views:
        found = _stopped(rule, view) or _silent(rule, facts, view)
        if found is None and isinstance(view, EngineView) and known(view.state):
            found = _wedged(rule, view, view.state)
        if found:
            yield found
