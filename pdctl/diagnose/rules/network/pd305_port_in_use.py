"""PD305: two servers of one host want the same port."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Event, Socket
from pdctl.diagnose.endpoints import Endpoint, by_endpoint, listeners, ports
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, HostView, Party
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_ANOTHER = re.compile(r"(?i)\b(?:trying|retry\w*|instead|next|another|fall(?:ing)? ?back)\b")


@rule("PD305", "port already in use", Severity.ERROR, ["logs"], echo_of=["PD307", "PD306", "PD326"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server cannot bind its port because another process has it.

    What it looks like: "Address already in use" at the start, for HTTP, bootstrap, NIXL side channel, KV
    events or torch. Two engines on one host were given the same base, or bases nearer than TP x DP.

    What else it could be: the owner is a sibling of this fleet (a conflict of settings), a left-over of an
    earlier life (an orphan: parent 1, older than the unit), or a stranger; the owner's pid and start tell. A
    port that is another one at each start is a race (PD307).

    What to do: give each instance a base of its own, spaced by TP x DP. Stop an orphan by its pid.
    """
    for at, events in by_endpoint(facts.events("net.in_use")).items():
        for name in dict.fromkeys(e.party for e in events):
            party = facts.party(name)
            if party is None or _recovered(party, [e for e in events if e.party == name]):
                continue
            yield _finding(rule, facts, party, at, [e for e in events if e.party == name])


def _finding(rule: Rule, facts: Facts, party: Party, at: Endpoint, events: list[Event]) -> Finding:
    host = facts.host(party.member.host)
    bound = listeners(host, at.port) if host else []
    here = [p for p in facts.parties if p.member.host == party.member.host and p is not party]
    siblings = [p.name for p in here if at.port in ports(p) or _spans(p, at.port)]
    siblings = siblings or [p.name for p in here if _owner_is(p, bound)]
    own = _twice(party, at.port)
    orphan = host is not None and _orphaned(host, bound)
    lines = [
        f"{party.member.host}: {s.process or 'a process'} (pid {s.pid}) has port {s.port}" for s in bound
    ]
    if own:
        told = f"two of its own listeners were given it ({listed(own)})"
    elif orphan and not siblings:
        told = f"a left-over process (pid {bound[0].pid}) has it"
    elif siblings:
        told = f"{listed(siblings)} on the same host has it"
    elif bound and bound[0].process:
        told = f"{bound[0].process} (pid {bound[0].pid}) has it"
    else:
        told = "another process of its host has it"
    pid = next((s.pid for s in bound if s.pid), None)
    certain = bool(siblings or own or orphan or (bound and bound[0].process))
    return rule.finding(
        party.name,
        f"{party.name} cannot bind port {at.port}: {told}.",
        [*_settings(facts, [party.name, *siblings], at.port), *lines, *quoted(events)],
        f"kill {pid}, then: pdctl restart {party.name}"
        if orphan and not siblings
        else "give each instance a port base of its own, spaced by TP x DP, and restart it",
        touches=[party.name, *siblings],
        since=since(events),
        hypotheses=() if certain else _live(at.port),
    )


def _live(port: int) -> tuple[Hypothesis, ...]:
    test = f"ss -ltnp 'sport = :{port}', then the owner's parent and start: ps -o pid,ppid,lstart,cmd -p PID"
    return (
        Hypothesis("a sibling instance was given the same port", test),
        Hypothesis("a left-over of an earlier life holds it (parent 1, older than the unit)", test),
    )


def _recovered(party: Party, events: list[Event]) -> bool:
    """It took another port and was ready. One that is ready without its port is not: peers look for it."""
    last = max(e.order for e in events)
    ready = any(e.order > last for e in party.traces.of("net.ready"))
    return ready and party.traces.ended is None and any(_ANOTHER.search(e.line) for e in events)


def _span(party: Party) -> int:
    told = party.traces.settings
    return (
        int(told.get("tp", "1")) * int(told.get("dp", "1"))
        if all(told.get(n, "1").isdigit() for n in ("tp", "dp"))
        else 1
    )


def _spans(party: Party, port: int) -> bool:
    """A side channel takes a port for each rank, from its base on."""
    base = party.traces.environ.get("VLLM_NIXL_SIDE_CHANNEL_PORT", "")
    return base.isdigit() and int(base) <= port < int(base) + _span(party)


def _owner_is(party: Party, bound: list[Socket]) -> bool:
    return any(s.pid is not None and s.pid in party.member.pids for s in bound)


def _twice(party: Party, port: int) -> list[str]:
    """Settings of one server that name this port more than once."""
    told = {**party.traces.settings, **party.traces.environ}
    names = [n for n, v in told.items() if v == str(port) or v.endswith(f":{port}")]
    return names if len(names) > 1 else []


def _orphaned(host: HostView, bound: list[Socket]) -> bool:
    pids = {s.pid for s in bound}
    return any(row.pid in pids and row.parent == 1 for row in host.traces.processes)


def _settings(facts: Facts, names: list[str], port: int) -> list[str]:
    found = []
    for name in names:
        party = facts.party(name)
        if party is not None and port in ports(party):
            found.append(f"{name}: {ports(party)[port]} is {port}")
    return found
