"""PD514: one failure put a live peer on a list of the dead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count, listed

_MANY = 3


@rule("PD514", "a live peer is blacklisted", Severity.ERROR, ["logs"], echo_of=["PD510"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A transfer engine marked a peer's session as failed after one error and refuses every room since.

    What it looks like: "remote mooncake session … is not alive" at once for each room, for minutes or hours,
    with one session; the peer answers and serves others. The list has no expiry by default.

    What else it could be: a peer that ended or does not answer is dead indeed. A peer that was restarted at
    the same address clears its entry when it registers again; if it does not, it is a stale pair (PD510).

    What to do: restart the side that keeps the list, with its peers: `pdctl restart --co CELL`. On SGLang
    SGLANG_ENABLE_FAILED_SESSION_PROBE=1 makes it try again.
    """
    by: dict[str, list[Event]] = defaultdict(list)
    for event in facts.events("sglang.session_dead"):
        by[event.values.get("remote", "?")].append(event)
    peers = [e for e in facts.engines if e.role == "decode"]
    gone = [p.name for p in peers if p.traces.ended is not None or p.traces.health not in ("ok", "")]
    alive = bool(peers) and not gone
    for remote, events in by.items():
        if len(events) < _MANY or gone:
            continue
        names = writers(events)
        view = facts.engine(names[0])
        yield rule.finding(
            listed(names),
            f"{listed(names)} refuses every transfer to {remote} since one failure: it holds the session for "
            f"dead ({count(len(events), 'room')} refused) and the peer lives.",
            [*quoted(events), *(f"{p.name} answers" for p in peers if p.traces.health == "ok")],
            f"pdctl restart --co {view.member.cell}" if view else f"restart {names[0]}",
            touches=[*names, *(p.name for p in peers)],
            since=since(events),
            hypotheses=()
            if alive and all(p.traces.health == "ok" for p in peers)
            else (
                Hypothesis("the peer lives and its session is blacklisted", f"curl the engine at {remote}"),
                Hypothesis("the peer is dead", "look for its exit and its last log line"),
            ),
        )
