"""PD602: requests pinned between prefill and decode."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pdctl.diagnose.ends import ends
from pdctl.diagnose.facts import Facts, peer_of
from pdctl.diagnose.ledger import Entry, join
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count, some, span

LOST = {
    "want": "decode asked for the pages and the prefill never saw it: the Want was lost",
    "write": "the prefill has the Want and its write stands still: the transfer is stalled",
    "done": "everything is written and decode still waits: the Done was lost",
    "taken": "decode has the KV and the prefill was never told: the Taken was lost",
    "room": "one side holds the room and the other, which answers, does not know it",
    "peer": "the other side does not answer",
    "unseen": "no decode was looked at that could take them",
}


def _passes(facts: Facts, entry: Entry) -> bool:
    """Whether a transfer of its edge ended well after it began to wait: the edge works."""
    prefill, decode = facts.engine(entry.prefill or ""), facts.engine(entry.decode or "")
    peer = peer_of(prefill, decode) if prefill is not None and decode is not None else None
    return (
        peer is not None and peer.last_transfer_age is not None and peer.last_transfer_age < entry.stage_age
    )


def _pages(e: Entry) -> str:
    """Each leg's own: the two are different pages, on different engines."""
    sides = ((e.prefill, e.prefill_pages), (e.decode, e.decode_pages))
    told = [f"{count(pages, 'page')} on {name}" for name, pages in sides if pages is not None]
    return "; " + ", ".join(told) if told else ""


def _line(facts: Facts, e: Entry) -> str:
    waits = f", waiting on {e.waiting_on}" if e.waiting_on else ""
    return (
        f"{e.id} room {e.room}: {e.stage} on {e.holder} for {span(e.stage_age)}{waits}{_pages(e)}; "
        + e.why
        + ends(facts, e)
    )


@rule(
    "PD602",
    "pinned inflight transfers",
    Severity.ERROR,
    ["engine.state"],
    echo_of=["PD606", "PD202", "PD201", "PD203", "PD301", "PD302", "PD501", "PD106", "PD204", "PD502"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Requests sit in the prefill's inflight queue, or wait for KV on decode, and no byte moves.

    What it looks like: no GPU work, no error, no log line; the age of the oldest inflight transfer grows
    and its bytes do not. Dwell there is under a second when healthy. What the prefill waits on names the
    lost step: want (decode's request for pages never came), transfer (the write stands still), taken
    (decode's receipt, or the prefill's Done, was lost).

    What else it could be: decode without free pages or slots that makes progress is backpressure (PD603)
    and heals alone. A frozen or dead decode (PD202, PD201) or a one-sided restart (PD501) explains
    pinned rooms on its edges, and an armed fault point (PD606) may be a drill somebody left.

    What to do: the watchdog (PD_PREFILL_INFLIGHT_TIMEOUT) ends each with kv_transfer_timeout and frees its
    pages. One room beside transfers that pass is ended by `pdctl abort ID`. If the edge passes none, or more
    rooms follow, restart the pair: `pdctl restart --co CELL`.
    """
    groups: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    for entry in join(facts):
        if entry.verdict == "stuck" and entry.lost in LOST:
            groups[(entry.prefill or "", entry.decode or "", entry.lost)].append(entry)
    for (prefill, decode, lost), entries in groups.items():
        oldest = max(entries, key=lambda e: e.stage_age)
        names = [n for n in (prefill, decode) if n]
        view = facts.engine(names[0]) if names else None
        cell = f" {view.member.cell}" if view else ""
        alone = len(entries) == 1 and _passes(facts, entries[0])
        counted = count(len(entries), "request is", "requests are")
        where = f"{'between' if len(names) > 1 else 'on'} {' and '.join(names)}"
        yield rule.finding(
            " -> ".join(names),
            f"{counted} pinned {where}, the oldest for {span(oldest.stage_age)}: "
            f"{LOST[lost]}{'; later transfers of this pair passed' if alone else ''}.",
            some([_line(facts, e) for e in entries]),
            f"pdctl abort {entries[0].id}" if alone else f"pdctl restart --co{cell}",
            touches=names,
            since=oldest.since,
        )
