"""A scrape of /metrics as readings; a line that is not of the format is left out, not fatal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pdctl.adapters.readings.tables import METRICS, RANKS
from pdctl.adapters.traces import Reading

_JOIN: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}


def samples(text: str) -> Iterator[Sample]:
    """Every sample of the text. A scrape that was cut or mended by hand is read line by line."""
    try:
        yield from [s for family in text_string_to_metric_families(text) for s in family.samples]
        return
    except ValueError:
        pass
    for line in text.splitlines():
        try:
            yield from [s for family in text_string_to_metric_families(line + "\n") for s in family.samples]
        except ValueError:
            continue


def _rank(labels: dict[str, str]) -> str:
    """As stamps.rank says it of a log line."""
    named = {f"{word}{labels[name]}" for name, word in RANKS.items() if labels.get(name, "").isdigit()}
    return " ".join(sorted(named))


def readings(text: str, at: float | None, source: str = "metrics") -> tuple[Reading, ...]:
    """The server as a whole first, then each rank that has numbers of its own."""
    whole: dict[str, list[float]] = defaultdict(list)
    ranks: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    how: dict[str, str] = {}
    for sample in samples(text):
        if sample.name not in METRICS or sample.value != sample.value:
            continue
        name, how[name] = METRICS[sample.name]
        whole[name].append(sample.value)
        if rank := _rank(sample.labels):
            ranks[rank][name].append(sample.value)
    if not whole:
        return ()
    rows = [("", whole), *sorted(ranks.items())]
    return tuple(
        Reading(at, source, {n: float(_JOIN[how[n]](v)) for n, v in numbers.items()}, rank)
        for rank, numbers in rows
    )
