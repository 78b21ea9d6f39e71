"""PD623: KV was read, and the prefill was not told by everybody who read it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count, listed

_MANY = 3


@rule("PD623", "notices of readers are lost", Severity.WARNING, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The prefill frees a request's KV when every expected reader has said so, and some never do.

    What it looks like: "Releasing expired KV blocks … retrieved by 1 …": read by some workers, freed by the
    timer; answers are right, and the prefill's KV usage is high because each request's pages stay for a
    whole timer. Unequal TP of the two sides, or ids that differ between them, do it.

    What else it could be: "retrieved by 0" is decode that did not pull (PD616). Failed notifications in
    vllm:nixl_num_failed_notifications are the network.

    What to do: use equal TP on both sides or take a build that notifies every prefill rank with the
    prefill's request id; shorten the KV timer meanwhile.
    """
    events = [e for e in facts.events("vllm.kv_expired") if e.values.get("n", "0") != "0"]
    if len({e.values.get("id") for e in events}) < _MANY:
        return
    names = writers(events)
    tp = [f"{v.name}: tp {v.traces.settings['tp']}" for v in facts.engines if "tp" in v.traces.settings]
    usage = [
        f"{n}: KV {u:.0%} in use" for n in names if (p := facts.party(n)) and (u := p.traces.last("kv_usage"))
    ]
    yield rule.finding(
        listed(names),
        f"{listed(names)} kept KV of {count(len(events), 'request')} until its timer although decode had "
        "read it: not every reader's notice arrives.",
        [*quoted(events), *tp, *usage],
        "use equal tensor parallelism on both sides, or shorten the prefill's KV timer",
        touches=[*names, *(d.name for d in facts.engines if d.role == "decode")],
        since=since(events),
    )
