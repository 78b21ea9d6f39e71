"""What NCCL says of collectives: operation counts of its RAS, and its watchdog's timeouts; pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quote
from pdctl.diagnose.facts import Facts


@dataclass(frozen=True)
class Counts:
    """Operation counts of ranks in the newest of `dumps` RAS dumps; `still`: the one before had the same."""

    values: list[str]
    spread: int
    still: bool
    dumps: int
    lines: list[str]


def launched(facts: Facts) -> dict[str, Counts]:
    """Host or party whose document it is -> counts."""
    by: dict[str, dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in facts.events("collective.launched"):
        document = event.where.rpartition(":")[0]
        by[event.party][document].append(event)
    found = {}
    for name, documents in by.items():
        dumps = [documents[d] for d in sorted(documents)]
        numbers = [sorted(int(e.values["count"]) for e in dump) for dump in dumps]
        still = len(numbers) > 1 and set(numbers[-1]) == set(numbers[-2])
        values = [str(n) for n in sorted(set(numbers[-1]))]
        spread = max(numbers[-1]) - min(numbers[-1])
        found[name] = Counts(values, spread, still, len(dumps), [quote(e) for e in dumps[-1][:4]])
    return found


def timeouts(facts: Facts) -> dict[str, list[Event]]:
    """Party -> what its NCCL watchdog caught, one line a rank, the first of each."""
    found: dict[str, dict[str, Event]] = defaultdict(dict)
    for event in facts.events("collective.timeout"):
        found[event.party].setdefault(event.values.get("rank", ""), event)
    return {name: list(ranks.values()) for name, ranks in found.items()}
