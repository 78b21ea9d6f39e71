"""PD221: a probe ends an engine that works or still loads."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, HostView, Party
from pdctl.diagnose.lives import died, fatal
from pdctl.diagnose.progress import stall
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule


def _probed(facts: Facts, party: Party) -> list[Event]:
    host: HostView | None = facts.host(party.member.host)
    beside = [e for e in host.traces.events if e.sign == "process.probe_failed"] if host else []
    return [*party.traces.of("process.probe_failed"), *beside]


def _hung_on(facts: Facts, party: Party) -> bool:
    """It logged the loss of a peer, and one ended: it hung on that one, whose end is the cause."""
    lost = any(party.traces.of("sglang.lost_prefill", "nixl.remote_disconnect"))
    return lost and any(died(p) for p in facts.engines if p.name != party.name)


@rule("PD221", "ended by its probe", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An orchestrator restarts a server because its liveness probe failed, not because the server ended.

    What it looks like: "Liveness probe failed", then SIGTERM and exit 143 or 137, restarts that match the
    probe's period times its threshold, no exception in the log.

    What else it could be: a server that was wedged deserved it: tokens that stand still before the kill are
    the hang's, and an exception before it is the exception's.

    What to do: give the start its own probe that covers loading and warm-up, and the liveness probe a
    timeout above the longest prefill step; probe progress, not latency.
    """
    for party in facts.parties:
        lines = _probed(facts, party)
        ended = party.traces.restarts or party.traces.ended in (137, 143, -9, -15)
        if not lines or not ended or fatal(party.traces) or stall(party.traces) or _hung_on(facts, party):
            continue
        yield rule.finding(
            party.name,
            f"{party.name} is restarted by its liveness probe while it loads or works.",
            [*quoted(lines), f"restarts: {party.traces.restarts or 0}, exit {party.traces.ended}"],
            "add a startup probe that covers loading, and raise the liveness timeout above the longest step",
            since=since(lines),
            hypotheses=[]
            if party.traces.lines or party.traces.readings
            else [
                Hypothesis(
                    "it is slow, not stuck", "its token counters over 10 s just before the probe fails"
                ),
                Hypothesis("it is wedged", "py-spy dump --pid PID before the restart"),
            ],
        )
