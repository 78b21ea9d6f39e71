"""PD521: the prefill leg of a request failed and the router let decode wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, RouterView
from pdctl.diagnose.rooms import failures
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count


@rule("PD521", "the router lets a failed prefill leg pass", Severity.ERROR, ["logs"], echo_of=["PD510"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The call to the prefill failed; decode had been sent the room already and waits for KV in vain.

    What it looks like: the client hangs and gets an opaque error from decode; the router's log mentions a
    failed prefill request once and answers nobody; the prefill's access log has a 4xx or 5xx for it, or no
    record of the room at all. Routers that run the prefill call detached do this.

    What else it could be: when the prefill accepted the room, its KV was lost on the way: look at the
    transfer. A prefill that is down says so itself.

    What to do: look up the prefill's answer for that room and mend it; have the router end the decode leg
    when the prefill leg fails, or abort the room on decode.
    """
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
