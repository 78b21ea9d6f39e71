"""DeepSeek's families over a pair: prefill of two ranks, decode of three, as the single engine says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.stack import Stack, stack, wait_for
from tests.engine.models.deepseek import build_served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PROMPTS = ["Paris", "1, 2, 3, 5, 8,", "The quick brown fox " * 9, "def f(n):\n" * 30]
TOKENS = 24
CHECKED = {"PD_KV_CHECKSUM": "1"}


@pytest.fixture(scope="module", params=["deepseek_v32", "deepseek_v4"])
def cell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp(request.param)
    build_served(request.param, folder / "model")
    with stack(folder, folder / "model") as s:
        s.engine("prefill-0", "prefill", tp=2, pages=512, token_budget=64)
        s.engine("decode-0", "decode", tp=3, pages=512, env=CHECKED)
        s.engine("single", "both", pages=512)
        for process in s.processes.values():
            process.wait_ready(400.0)
        yield s


def test_the_pair_says_what_the_single_engine_says(cell: Stack) -> None:
    want = [cell.ids("single", prompt, TOKENS) for prompt in PROMPTS]
    assert [cell.pair_ids("prefill-0", "decode-0", prompt, TOKENS) for prompt in PROMPTS] == want
    counters = cell["decode-0"].state()["counters"]
    assert (counters["kv_verified"], counters["kv_corrupt"]) == (len(PROMPTS), 0)
    cell.baseline("prefill-0", "decode-0", "single")


def test_damage_on_the_way_is_seen(cell: Stack) -> None:
    before = cell["decode-0"].state()["counters"]["kv_corrupt"]
    cell.admin("decode-0", "faults", name="corrupt-page", armed=True, count=1)
    with pytest.raises(AssertionError, match="kv_corrupt"):
        cell.pair_ids("prefill-0", "decode-0", PROMPTS[1], TOKENS)
    wait_for("the counter", lambda: cell["decode-0"].state()["counters"]["kv_corrupt"] == before + 1)
    cell.baseline("prefill-0", "decode-0")


def test_the_state_says_what_kind_of_cache_it_is(cell: Stack) -> None:
    fingerprint = cell["decode-0"].state()["fingerprint"]
    assert fingerprint["layout"] == "opaque-1" and fingerprint["tp"] == 3
