"""PD330: a prefill could not register with its own bootstrap server."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.endpoints import anywhere, endpoint, loopback
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD330", "a rank was not registered", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A prefill's rank registered before its bootstrap server had bound its port, and does not try again.

    What it looks like: "failed to register to bootstrap server … Connection refused" at its own address, and
    in the same second the server "started successfully". Health is fine; every handshake waits or fails,
    because that rank is missing in the server's table.

    What else it could be: refused at another host's address is a wrong address or a dead server (PD304). A
    later line that the registration succeeded clears it.

    What to do: `pdctl restart` that prefill; where it comes again, take a release that retries.
    """
    for party in facts.parties:
        failed = [e for e in party.traces.of("net.no_bootstrap") if "register" in e.line and _own(e.line)]
        later = [e for e in party.traces.of("net.registered") if failed and e.order > failed[-1].order]
        if not failed or later:
            continue
        started = list(party.traces.of("net.serves"))
        yield rule.finding(
            party.name,
            f"{party.name} did not register with its own bootstrap server: it was refused at its start "
            "and does not try again.",
            quoted([*failed, *started]),
            f"pdctl restart {party.name}",
            since=since(failed),
        )


def _own(line: str) -> bool:
    at = endpoint(line)
    return at is not None and (anywhere(at.host) or loopback(at.host))
