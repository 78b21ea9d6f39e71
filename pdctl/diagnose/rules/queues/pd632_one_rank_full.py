"""PD632: one data parallel rank is full and all of them stand."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import at_work
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_CEILING, _ROOM = 0.95, 0.75


@rule("PD632", "one full rank stops all", Severity.ERROR, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The KV of one rank is at its ceiling, others have room, and all stand: ranks step together.

    What it looks like: token usage near 1.0 on one DP rank and far below on the rest, no tokens on any, no
    collective timeout until much later. Limits on running requests do not bound what is preallocated.

    What else it could be: all ranks full is capacity. All ranks with room and no progress is a collective
    or a stuck rank.

    What to do: restart decode to free it, `pdctl restart NAME`; spread requests by tokens over the ranks and
    leave headroom at the router.
    """
    for view in facts.engines:
        seen = view.traces
        usage = {r: u for r in seen.ranks if (u := seen.last("kv_usage", r)) is not None}
        full = [r for r, u in usage.items() if u >= _CEILING]
        room = [r for r, u in usage.items() if u <= _ROOM]
        moving = at_work(seen) or any((seen.last("generation_tps", r) or 0) > 0 for r in usage)
        if not full or len(full) > len(room) or moving:
            continue
        yield rule.finding(
            view.name,
            f"{view.name} stands as a whole because the KV of {full[0]} is full: its ranks step together, "
            f"{len(room)} of {len(usage)} have room.",
            [", ".join(f"{r} {u:.0%}" for r, u in usage.items()) + " of KV in use"],
            f"pdctl restart {view.name}",
        )
