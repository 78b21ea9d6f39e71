"""PD528: a rank of a prefill is not registered, so that no decode can shake hands with it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.starts import started
from pdctl.diagnose.words import listed

_MANY = 5
_LOADS = 300.0  # seconds in which a prefill may still come up


@rule(
    "PD528",
    "a prefill rank is not registered",
    Severity.ERROR,
    ["logs"],
    echo_of=["PD303", "PD304", "PD305", "PD309", "PD311", "PD312", "PD301", "PD330"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A prefill's bootstrap server waits for ranks that gave up registering; the process lives on.

    What it looks like: "Prefill server not fully registered yet (N workers registered)" long after the
    start, "failed to register to bootstrap server" once in one rank's log, every handshake refused with 503.
    Health is green: it proves the HTTP thread alone.

    What else it could be: during the start it is normal. A connection that is refused is a wrong address or
    a dead server.

    What to do: restart the prefill, `pdctl restart NAME`; if it happens again, check that its ranks reach
    the bootstrap address (host, port, several nodes).
    """
    done = {e.party: e.order for e in facts.events("net.registered")}
    gave_up = [e for e in facts.events("room.register_failed") if done.get(e.party, -1) < e.order]
    asked = facts.events("room.not_registered")
    prefills = [e for e in facts.engines if e.role == "prefill"]
    last = max((e.at for e in asked if e.at is not None), default=None)
    starts = [s for p in prefills if (s := started(facts, p)) is not None]
    young = last is not None and any(last - s < _LOADS for s in starts)
    if not gave_up and (len(asked) < _MANY or young):
        return
    names = writers(gave_up) or [p.name for p in prefills]
    yield rule.finding(
        listed(names),
        f"Ranks of {listed(names)} are not registered with its bootstrap server: no decode can shake hands "
        "with it, although it answers health.",
        [*quoted(gave_up, 2), *quoted(asked, 2)],
        f"pdctl restart {names[0]}" if names else "restart the prefill",
        touches=[*names, *writers(asked)],
        since=since([*gave_up, *asked]),
        hypotheses=()
        if gave_up
        else (
            Hypothesis("a rank gave up registering", "grep every prefill rank's log for 'register'"),
            Hypothesis("it still loads", "GET /route on its bootstrap port again in a minute"),
        ),
    )
