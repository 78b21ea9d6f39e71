"""A line of a few characters: values over time, higher is more, blank where nothing is known."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"


def spark(values: Sequence[float | None], most: float | None = None) -> str:
    """One character a value, from 0 to `most` or to the largest of them."""
    top = most if most is not None else max((v for v in values if v is not None), default=0.0)
    return "".join(" " if v is None else _block(v, top) for v in values)


def _block(value: float, top: float) -> str:
    if value <= 0 or top <= 0:
        return BLOCKS[0]
    # Anything above nothing can be told from nothing.
    return BLOCKS[min(len(BLOCKS) - 1, max(1, round(value / top * (len(BLOCKS) - 1))))]
