"""PD715: more threads poll than there are cores."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_SLOW = 15.0  # seconds that no agent needs to start
_OVER = 1.3


@rule("PD715", "more threads than cores", Severity.WARNING, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A host has more runnable threads than cores, so that pollers starve what they wait for.

    What it looks like: agents that start in 3 s take 30 s, timeouts of handshakes, a load above the number
    of cores; transfer agents with several busy-polling threads each, times the ranks of the host.

    What else it could be: a load made of processes in disk wait is a disk's. Timeouts with idle CPUs are
    the network's.

    What to do: one polling thread an agent (TRTLLM_NIXL_NUM_THREADS=1, num_threads in NIXL's backend
    parameters), and no more ranks on a host than its cores carry.
    """
    for host in facts.hosts:
        load, cores = host.traces.numbers.get("load1"), host.traces.numbers.get("cores")
        here = [p for p in facts.parties if p.member.host == host.name]
        slow = [
            e for p in here for e in p.traces.of("host.slow_agent") if float(e.values["seconds"]) >= _SLOW
        ]
        if not load or not cores or load < _OVER * cores or not slow:
            continue
        names = [p.name for p in here]
        yield rule.finding(
            host.name,
            f"{host.name} has a load of {load:g} on {cores:g} cores: polling threads starve {listed(names)}.",
            [f"load {load:g}, cores {cores:g}", *quoted(slow)],
            "one polling thread an agent: TRTLLM_NIXL_NUM_THREADS=1 (NIXL: num_threads), then: pdctl deploy",
            touches=[host.name, *names],
            since=since(slow),
        )
    yield from _without_load(rule, facts)


def _without_load(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Agents that start slowly on a host whose load nobody showed."""
    for party in facts.parties:
        host = facts.host(party.member.host)
        slow = [e for e in party.traces.of("host.slow_agent") if float(e.values["seconds"]) >= _SLOW]
        if slow and (host is None or "load1" not in host.traces.numbers):
            yield rule.finding(
                party.name,
                f"The transfer agent of {party.name} takes long to start.",
                quoted(slow),
                "uptime; lscpu",
                since=since(slow),
                hypotheses=[
                    Hypothesis("polling threads starve it", "uptime against nproc; top -H while it starts"),
                    Hypothesis(
                        "a name or device is slow to answer",
                        "UCX_LOG_LEVEL=info and the time between its lines",
                    ),
                ],
            )
