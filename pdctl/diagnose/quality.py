"""Whether answers are right, as somebody who compared them wrote down; pure."""

from __future__ import annotations

from itertools import pairwise

from pdctl.adapters.traces import Event
from pdctl.diagnose.facts import Facts

WRONG = ("answer.differs", "answer.bytes_differ", "answer.wrong_room", "answer.nan")
DROP = 0.1  # of accuracy, that is no noise


def scores(facts: Facts) -> list[tuple[float, Event]]:
    """(accuracy 0 to 1, line), in the order they were measured."""
    found = []
    for event in facts.events("answer.accuracy"):
        for name in ("value", "other"):
            if name in event.values:
                value = float(event.values[name].rstrip("."))
                found.append((value / 100 if "percent" in event.values or value > 1 else value, event))
    return found


def symptoms(facts: Facts) -> list[Event]:
    """Lines that say that an answer, or KV, is not what it should be."""
    return facts.events(*WRONG)


def decays(facts: Facts) -> list[Event]:
    """Lines of accuracy that fall from measurement to measurement, at least three of one document."""
    found = scores(facts)
    values = [v for v, _ in found]
    falling = len(values) >= 3 and all(b <= a + 0.02 for a, b in pairwise(values))
    return [e for _, e in found] if falling and values[0] - values[-1] >= DROP else []


def poor(facts: Facts) -> list[Event]:
    """Lines of two accuracies that differ by more than noise: of two set-ups, or over time."""
    found = scores(facts)
    values = [v for v, _ in found]
    return [e for _, e in found] if len(values) > 1 and max(values) - min(values) >= 0.05 else []


def parties(facts: Facts, events: list[Event]) -> list[str]:
    """Engines concerned: the writers of the lines that are engines, else all engines."""
    names = [e.party for e in events if facts.engine(e.party) is not None]
    return list(dict.fromkeys(names)) or [e.name for e in facts.engines]
