"""DeepSeek's caches over real agents: ranks that hold the same, state pages last, index-K verified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.core.types import FirstToken, Slice
from tests.engine.models.deepseek import build_deepseek, one_thread, reference  # noqa: F401
from tests.engine.models.tiny import Ranks
from tests.engine.transfer.harness import Engine, until

Make = Callable[..., Engine]
PAGE, POOL, PROMPT, FURTHER = 16, 80, 43, 18
TOKENS = torch.randint(0, 101, (PROMPT + FURTHER,), generator=torch.Generator().manual_seed(9)).tolist()
NAMES = ("deepseek_v32", "deepseek_v4")


@pytest.fixture(scope="module", params=NAMES)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, torch.Tensor]:
    folder = tmp_path_factory.mktemp(request.param)
    return folder, reference(build_deepseek(request.param, folder), TOKENS)


class Pair:
    """A linked prefill and decode with models, and each side's page list of a sequence, as of a scheduler."""

    def __init__(self, engine: Make, folder: Path, tp: tuple[int, int], **env: str) -> None:
        self.ranks = [Ranks(folder, n, pages=POOL, page_size=PAGE) for n in tp]
        mine, theirs = self.ranks
        for runner in theirs.runners:
            runner.pool.fill_(0xFF)  # no number: what is not carried shows
        self.prefill = engine("prefill", "prefill-0", runners=mine.runners)
        address = [self.prefill.address]
        self.decode = engine("decode", "decode-0", runners=theirs.runners, peers=address, env=env)
        until(lambda: self.prefill.linked() and self.decode.linked(), "both sides linked")
        self.state = mine.runners[0].shape.state_pages
        count = self.state - (-len(TOKENS) // PAGE)
        self.src, self.dst = list(range(5, 5 + count)), list(range(60, 60 - count, -1))

    def sent(self, pages: list[int]) -> list[int]:
        """The pages of the prompt in the order of transfer."""
        return [*pages[self.state : self.state - (-PROMPT // PAGE)], *pages[: self.state]]

    def hand_over(self, cut: int = 20) -> None:
        """Compute the prompt in two chunks, the first of which is sent while the second is computed."""
        self.prefill.transfer.open(5, "p")
        self.decode.transfer.request(5, "d", self.prefill.address)
        self.decode.transfer.grant(5, self.sent(self.dst), PROMPT)
        self.ranks[0].run(Slice(TOKENS[:cut], 0, self.src, True))
        self.prefill.transfer.chunk(5, self.sent(self.src), cut // PAGE)
        self.ranks[0].run(Slice(TOKENS[cut:PROMPT], cut, self.src, True))
        self.prefill.transfer.computed(5, PROMPT, self.sent(self.src), FirstToken(token=7))

    def counters(self) -> dict[str, object]:
        return self.decode.transfer.counters_document()


@pytest.mark.parametrize("tp", [(1, 3), (3, 2)], ids=str)
def test_what_is_handed_over_goes_on_as_if_it_had_never_moved(
    engine: Make, made: tuple[Path, torch.Tensor], tp: tuple[int, int]
) -> None:
    folder, want = made
    pair = Pair(engine, folder, tp, PD_KV_CHECKSUM="1")
    pair.hand_over()
    until(lambda: pair.decode.sink.of(5) == ["done", "quiet", "ready"], "the room is ready")
    assert (pair.counters()["kv_verified"], pair.counters()["kv_corrupt"]) == (1, 0)
    decode = pair.ranks[1]
    got = torch.cat([decode.run(Slice([TOKENS[p]], p, pair.dst, True)) for p in range(PROMPT, len(TOKENS))])
    assert torch.allclose(got, want[PROMPT:], atol=2e-4)


def test_index_k_that_is_not_what_was_computed_ends_the_request_with_its_place(
    engine: Make, made: tuple[Path, torch.Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    """Overwritten on prefill before it is sent: what arrives is what is there, so page sums say nothing."""
    pair = Pair(engine, made[0], (2, 2))
    runner = pair.ranks[0].runners[0]
    cache = runner._index
    assert cache is not None
    run = pair.prefill.transfer.computed

    def damaged(*args: object) -> object:
        for rank in pair.ranks[0].runners:
            keys = cache._layout.paged(rank.pool, "index_k", 1)
            keys[pair.src[pair.state], 0] = keys[pair.src[pair.state], 1]
        return run(*args)  # type: ignore[arg-type]

    pair.prefill.transfer.computed = damaged  # type: ignore[method-assign]
    pair.hand_over(cut=15)
    until(lambda: pair.decode.sink.of(5) == ["kv_corrupt", "quiet"], "the room fails")
    assert pair.counters()["kv_corrupt"] == 1
    assert "index-K of rank" in caplog.text and "the first of token 0" in caplog.text


def test_nothing_is_verified_where_it_is_switched_off(engine: Make, made: tuple[Path, torch.Tensor]) -> None:
    pair = Pair(engine, made[0], (1, 1), PD_INDEX_K_CHECK="0")
    pair.hand_over()
    until(lambda: pair.decode.sink.of(5) == ["done", "quiet", "ready"], "the room is ready")
    assert pair.counters()["kv_verified"] == 0
