"""What prefix reuse saves: time to first token of growing conversations, over a pair with it and one without.

Both pairs run at once and are asked in turn; each turn sends the whole conversation, as an agent does.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.bench import fleet
from tests.bench.load import one, prompts
from tests.bench.procs import BenchError, Procs, say
from tests.bench.stats import percentile, show, spread, table

BEGIN, GROWTH, OUTPUT, TURNS = 500, 100, 4, 6
SECONDS, LEAST = 150.0, 2  # after so long, and so many conversations that count, it is enough


def run(model: Path, dtype: str, rounds: int, logs: Path) -> tuple[str, dict[str, object]]:
    """At most `rounds` conversations of TURNS turns; returns the printed table and the JSON document."""
    with Procs(logs) as procs:
        engine = fleet.Engine(model, dtype)
        pairs = {"without": fleet.start_pair(procs, engine), "with": fleet.start_pair(procs, engine, {})}
        until = time.monotonic() + SECONDS
        ttft: dict[str, list[list[float]]] = {way: [[] for _ in range(TURNS)] for way in pairs}
        for number, conversation in enumerate(prompts(11, rounds + 1, BEGIN + (TURNS - 1) * GROWTH)):
            if number > LEAST and time.monotonic() > until:
                break
            say(f"  conversation {number} of at most {rounds}")
            for turn in range(TURNS):
                for way, pair in pairs.items() if (number + turn) % 2 else reversed(pairs.items()):
                    sample = asyncio.run(one(pair.router, conversation[: BEGIN + turn * GROWTH], OUTPUT))
                    if sample.error:
                        raise BenchError(f"a request {way} reuse failed: {sample.error}")
                    ttft[way][turn].append(sample.ttft)
    return _report({way: [turn[1:] for turn in turns] for way, turns in ttft.items()})  # the first one warms


def _report(ttft: dict[str, list[list[float]]]) -> tuple[str, dict[str, object]]:
    rows = [
        [f"{BEGIN + turn * GROWTH}", *(show(ttft[way][turn], 1e3) for way in ttft)] for turn in range(TURNS)
    ]
    later = {way: percentile([t for turn in turns[1:] for t in turn], 0.5) for way, turns in ttft.items()}
    text = [
        f"{len(ttft['with'][0])} conversations of {TURNS} turns, {GROWTH} new tokens each, TTFT in ms, "
        "the two pairs in turn"
    ]
    text += [table(["tokens sent", *(f"{way} reuse" for way in ttft)], rows)]
    text += [f"from the second turn on {later['without'] / later['with']:.1f} times as fast (medians)"]
    return "\n".join(text), {way: [spread(turn) for turn in turns] for way, turns in ttft.items()}
