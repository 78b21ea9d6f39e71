"""PD617: decode read KV that the prefill had released: answers may be wrong."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.expiries import expiries, id_of
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import at_cap
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.timers import of
from pdctl.diagnose.words import count, listed


@rule("PD617", "KV read after its lease expired", Severity.ERROR, ["logs"], echo_of=["PD618"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A request's KV was released when its lease ended, and decode read the blocks afterwards.

    What it looks like: for one id first "Releasing expired KV blocks … retrieved by 0", seconds later
    "Potentially invalid KV blocks for unrecognized request"; every client got HTTP 200. One line for each
    TP rank, so count ids, not lines.

    What else it could be: only the first line is wasted prefill (PD616). Wrong answers without these lines
    are corruption of another kind.

    What to do: treat the answers to these ids as wrong. Make the lease longer than decode's queueing:
    kv_lease_duration 300 in kv_connector_extra_config, and add decode capacity.
    """
    found = expiries(facts)
    if not found.read_after or (found.only_children and found.ids):
        return
    names = writers(found.late)
    leases = [t for n in names if (v := facts.engine(n)) for k, t in of(v).items() if k == "kv_lease"]
    lease = f" of {leases[0].value:g} s" if leases else ""
    decodes = [e for e in facts.engines if e.role == "decode"]
    full = [f"{d.name} is at its cap: {why}" for d in decodes if (why := at_cap(d.traces))]
    first = [e for e in found.unread if id_of(e) in found.read_after]
    yield rule.finding(
        listed(names),
        f"Decode read KV of {count(len(found.read_after), 'request')} after the lease{lease} on it had "
        "ended: their answers may be built on other requests' KV, with HTTP 200.",
        [*quoted(first, 2), *quoted(list(found.late), 2), *full],
        "set kv_lease_duration to 300 (kv_connector_extra_config) and check the answers of these requests",
        touches=[*names, *(d.name for d in decodes)],
        since=since([*first, *found.late]),
    )
