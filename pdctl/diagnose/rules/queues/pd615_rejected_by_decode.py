"""PD615: decode refuses requests whose prompt the prefill has computed, and the prefill keeps their KV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.expiries import expiries
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import number
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.timers import of
from pdctl.diagnose.words import count, span

_NEAR = 20.0


def _matched(unread: Sequence[Event], refused: Sequence[Event], hold: float) -> int:
    """Refusals that an expiry follows after the hold."""
    ends = [(e.at, number(e.values.get("seconds")) or hold) for e in unread if e.at is not None]
    if not ends:
        return min(len(refused), len(unread))  # a log without times
    begins = [at - seconds for at, seconds in ends]
    return sum(any(abs(r.at - begin) <= _NEAR for begin in begins) for r in refused if r.at is not None)


@rule("PD615", "KV kept for requests that decode refused", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Decode answers 4xx before it admits the request, so no transfer comes, and the prefill is not told.

    What it looks like: the prefill's KV usage follows decode's rate of 4xx answers with a tail of its KV
    timer (480 s on older vLLM); "Releasing expired KV blocks … retrieved by 0" one timer after each 4xx.

    What else it could be: expiries without refusals: decode did not come to it (PD616). Expiries of ids
    with a child prefix are n>1 (PD618).

    What to do: mend what the client sends (template, validation, model name), validate before the prefill
    leg, and shorten the timer (kv_lease_duration, VLLM_NIXL_ABORT_REQUEST_TIMEOUT).
    """
    prefills = [e for e in facts.engines if e.role == "prefill"]
    decodes = [e for e in facts.engines if e.role == "decode"]
    refused = [e for d in decodes for e in d.traces.of("http.client_error")]
    found = expiries(facts, [p.name for p in prefills])
    holds = [t.value for p in prefills for n, t in of(p).items() if n in ("kv_hold", "kv_lease")]
    hold = max(holds, default=480.0)
    matched = _matched(found.unread, refused, hold)
    if not found.unread or not refused or matched * 2 < len(refused):
        return
    names = [v.name for v in (*prefills, *decodes)]
    status = refused[0].values.get("status", "4xx")
    usage = [f"{p.name}: KV {u:.0%} in use" for p in prefills if (u := p.traces.last("kv_usage")) is not None]
    yield rule.finding(
        decodes[0].name,
        f"{decodes[0].name} refused {count(len(refused), 'request')} with HTTP {status} before it admitted "
        f"them, and the prefill kept their KV until its timer ({span(hold)}) ended.",
        [*quoted(refused, 2), *quoted(list(found.unread), 2), *usage],
        "read decode's 4xx answers and mend the requests; shorten the prefill's KV timer",
        touches=names,
        since=since(refused),
    )
