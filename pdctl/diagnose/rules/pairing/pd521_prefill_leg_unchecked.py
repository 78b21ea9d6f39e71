"""PD521: the prefill leg of a request failed and the router let decode wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.diagnose.endpoints import taken_back
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts, RouterView
from pdctl.diagnose.lives import died
from pdctl.diagnose.progress import stall
from pdctl.diagnose.rooms import failures
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count

_FEW = 3  # rooms; one or two are clients that left


@rule("PD521", "the router lets a failed prefill leg pass", Severity.ERROR, ["logs"], echo_of=["PD510"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The call to the prefill failed; decode had been sent the room already and waits for KV in vain.

    What it looks like: the client hangs and gets an opaque error from decode; the router's log mentions a
    failed prefill request once and answers nobody; the prefill's access log has a 4xx or 5xx for it, or no
    record of the room at all. Routers that run the prefill call detached do this. So do those whose breaker
    for the prefill stays open: decode gets rooms, the prefill gets nothing.

    What else it could be: when the prefill accepted the room, its KV was lost on the way: look at the
    transfer. A prefill that is down says so itself.

    What to do: look up the prefill's answer for that room and mend it; have the router end the decode leg
    when the prefill leg fails, or abort the room on decode.
    """
    yield from _halves(rule, facts)
    routers = [p for p in facts.parties if p.role == "router"]
    failed = [e for p in routers for e in p.traces.of("router.prefill_failed")]
    if not failed or not isinstance(facts.router, RouterView):
        return
    decodes = [e for e in facts.engines if e.role == "decode"]
    waited = failures(facts, *(d.name for d in decodes)) or facts.events("router.stream_error")
    held = any(d.traces.last(q) for d in decodes for q in ("queue_prealloc", "queue_transfer", "waiting_kv"))
    if not waited and not held:
        return
    prefills = [e for e in facts.engines if e.role == "prefill"]
    refused = [e for p in prefills for e in p.traces.of("http.client_error", "http.server_error")]
    why = f"; the prefill answered HTTP {refused[0].values.get('status')}" if refused else ""
    names = [p.name for p in prefills]
    yield rule.finding(
        facts.router.name,
        f"{count(len(failed), 'prefill leg')} failed and {facts.router.name} did not end the decode leg: "
        f"decode waits for KV that nobody will send{why}.",
        quoted([*failed, *refused]),
        f"pdctl logs {names[0]}" if names else "read the prefill's log for that request",
        touches=[facts.router.name, *(e.name for e in facts.engines)],
        since=since(failed),
    )


def _speaks_after(prefills: Sequence[EngineView], at: float) -> bool:
    """Their logs go on after that: that they had no work is not only that the logs end."""
    return all(any(e.at is not None and e.at > at for e in p.traces.events) for p in prefills)


def _halves(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A breaker opened and never closed; since then decode's rooms end unserved and no prompt is computed."""
    decodes = [e for e in facts.engines if e.role == "decode"]
    prefills = [e for e in facts.engines if e.role == "prefill"]
    for router in (p for p in facts.parties if p.role == "router"):
        opened = list(router.traces.of("router.breaker_open"))
        if not opened or opened[0].at is None or taken_back(router, opened[-1]):
            continue
        since_then = opened[0].at
        ended = [f for f in failures(facts, *(d.name for d in decodes)) if f.at and f.at > since_then]
        work = [e for p in prefills for e in p.traces.of("stats.prefill")]
        if len(ended) < _FEW or not prefills or any(e.at is None or e.at > since_then for e in work):
            continue
        if any(died(e) or stall(e.traces) or e.traces.health not in ("", "ok") for e in prefills):
            continue
        yield rule.finding(
            router.name,
            f"{router.name} holds the breaker of a prefill open and sends requests to decode alone: "
            f"{count(len(ended), 'room')} ended there without KV, and the prefill got no work.",
            [*quoted(opened, 2), *quoted([f.event for f in ended], 2)],
            f"pdctl restart {router.name}",
            touches=[router.name, *(e.name for e in facts.engines)],
            since=since_then,
            hypotheses=()
            if work and _speaks_after(prefills, since_then)
            else [
                Hypothesis(
                    "requests reach decode alone", "a request's room in the prefill's log: is it there?"
                ),
                Hypothesis(
                    "the prefill fails what it gets", "one request with this room to the prefill directly"
                ),
            ],
        )
