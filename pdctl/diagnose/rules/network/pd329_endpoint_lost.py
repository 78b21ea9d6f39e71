"""PD329: UCX lost an endpoint."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_NAMED = ("PD319", "PD320", "PD321", "PD327", "PD311", "PD312", "PD510", "PD511", "PD512", "PD513", "PD201")


@rule("PD329", "UCX lost an endpoint", Severity.ERROR, ["logs"], echo_of=_NAMED, fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """UCX reports that an endpoint timed out, was reset or failed; the peer or the path to it is gone.

    What it looks like: "Unexpected UCX error: Endpoint timeout", "Connection reset by remote peer", a failed
    send of a tcp_ep, error completions of an interface, NIXL_ERR_REMOTE_DISCONNECT; transfers of that pair
    fail from then on, with NIXL_ERR_NOT_FOUND too.

    What else it could be: a peer that was restarted or died (PD510, PD201) loses its endpoints rightly. One
    bad pair among good ones is PD512.

    What to do: see whether the peer was restarted at that moment; else test the path with ucx_perftest.
    """
    events = facts.events("ucx.endpoint")
    if not events:
        return
    what = dict.fromkeys(e.values.get("what", "").strip() for e in events if e.values.get("what"))
    yield rule.finding(
        listed(writers(events)),
        f"UCX of {listed(writers(events))} lost its peer" + (f": {listed(list(what)[:2])}." if what else "."),
        quoted(events),
        "pdctl restart --co CELL; then test the path with ucx_perftest",
        touches=partners(facts, writers(events)),
        since=since(events),
        hypotheses=(
            Hypothesis(
                "the peer ended or was restarted", "compare the time with the peer's last start and its log"
            ),
            Hypothesis(
                "the path between the hosts fails", "ucx_perftest between them with the same UCX_* variables"
            ),
        ),
    )
