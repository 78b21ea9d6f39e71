"""PD530: a handshake is answered by another engine than the one that has the KV."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_NAMED = ("PD309", "PD305", "PD501", "PD510")
_HOST = "VLLM_NIXL_SIDE_CHANNEL_HOST"


@rule("PD530", "the wrong engine answers the handshake", Severity.ERROR, ["logs"], echo_of=_NAMED)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Decode asks the address that came with the request, and another engine answers.

    What it looks like: "engine ID mismatch. Expected …, received …". The address is the default (localhost)
    or one that two engines share, so decode asks itself or a neighbour; it recomputes the prompt or fails.

    What else it could be: a prefill that was restarted has a new id at the right address: then requests of
    before the restart fail and later ones work (PD510).

    What to do: give every engine its own side-channel host and port.
    """
    lines = facts.events("pair.engine_id")
    if not lines:
        return
    names = writers(lines)
    unset = [p.name for p in facts.engines if p.traces.environ and _HOST not in p.traces.environ]
    address = Hypothesis(
        "the side channel's address leads to another engine (localhost, or a port that two share)",
        f"{_HOST} and its port in /proc/PID/environ of every engine: own address, own port?",
    )
    again = Hypothesis(
        "the prefill was restarted after it computed these requests",
        "its start against the first failure; does a new request work?",
    )
    yield rule.finding(
        listed(names),
        f"{listed(names)} asks for KV at an address where another engine answers.",
        [*quoted(lines), *([f"{_HOST} is not set: {listed(unset)}"] if unset else [])],
        f"set {_HOST} on every engine to its own address, and give each its own port",
        touches=[*names, *partners(facts, names)],
        since=since(lines),
        hypotheses=(address, again),
    )
