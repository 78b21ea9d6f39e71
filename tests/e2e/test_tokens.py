"""DESIGN rule 10: greedy output through a P/D pair equals the single engine's, for pairs of TP sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.stack import Stack, stack

PROMPTS = [
    "What is gravity? Answer in two sentences.",
    "def fibonacci(n):",
    "The quick brown fox " * 40,
    "1, 2, 3, 5, 8,",
    "Paris",
]
LONG = 40


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory, smollm: Path) -> list[list[int]]:
    with stack(tmp_path_factory.mktemp("single"), smollm) as s:
        s.engine("single", "both").wait_ready()
        return [s.ids("single", p, LONG) for p in PROMPTS]


@pytest.mark.parametrize(("prefill", "decode"), [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_pair_equals_single(fresh: Stack, wanted: list[list[int]], prefill: int, decode: int) -> None:
    # A small budget makes the long prompt travel in several chunks.
    fresh.engine("prefill-0", "prefill", tp=prefill, token_budget=64)
    fresh.engine("decode-0", "decode", tp=decode, token_budget=64)
    fresh["prefill-0"].wait_ready()
    fresh["decode-0"].wait_ready()
    fresh.router().wait_ready()
    assert [fresh.ids("router", p, LONG) for p in PROMPTS] == wanted
    fresh.baseline("prefill-0", "decode-0")
    moved = fresh["prefill-0"].state()["counters"]
    assert moved["transfers_ok"] >= len(PROMPTS) and moved["transfer_bytes"] > 0


@pytest.mark.parametrize("tp", [2, 3])
def test_single_engine_of_several_ranks(fresh: Stack, wanted: list[list[int]], tp: int) -> None:
    fresh.engine("single", "both", tp=tp).wait_ready()
    assert [fresh.ids("single", p, LONG) for p in PROMPTS] == wanted
