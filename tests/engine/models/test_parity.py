"""Logits equal transformers', for every architecture and number of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.core.errors import ModelError
from engine.core.types import Slice
from tests.engine.models.tiny import MODELS, Ranks, build, ranks_at_odds

TOKENS = torch.randint(0, 101, (37,), generator=torch.Generator().manual_seed(0)).tolist()
PAGES = [9, 3, 40, 1, 22, 8, 17, 5, 60, 2, 33, 12]


def reference(model, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float()


@pytest.mark.parametrize("tp", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_prefill_then_decode(tiny, name: str, tp: int) -> None:
    folder, model = tiny(name)
    want = reference(model, TOKENS)
    ranks = Ranks(folder, tp)
    got = [ranks.run(Slice(TOKENS[:30], 0, PAGES, True))]
    got += [ranks.run(Slice([TOKENS[p]], p, PAGES, True)) for p in range(30, 37)]
    assert got[0].dtype == torch.float32 and got[0].shape == (1, 101)
    assert torch.allclose(torch.cat(got), want[29:], atol=2e-4)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_every_row_of_a_chunked_prompt(tiny, name: str) -> None:
    folder, model = tiny(name)
    want = reference(model, TOKENS)
    ranks = Ranks(folder, 2)
    for start, stop in ((0, 1), (1, 8), (8, 21), (21, 37)):
        got = ranks.run(Slice(TOKENS[start:stop], start, PAGES, True))
        assert torch.allclose(got[0], want[stop - 1], atol=2e-4), (start, stop)


def test_bfloat16_is_near(tiny) -> None:
    folder, model = tiny("llama")
    want = reference(model, TOKENS)[-1]
    got = Ranks(folder, 2, "bfloat16").run(Slice(TOKENS, 0, PAGES, True))[0]
    assert got.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(got, want, dim=0) > 0.999


@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_ranks_that_want_different_rows_take_the_most(tiny, name: str) -> None:
    folder, model = tiny(name)
    with ranks_at_odds():
        ranks = Ranks(folder, 2)
    got = [ranks.run(Slice([TOKENS[p]], p, PAGES, True)) for p in range(3)]
    assert torch.allclose(torch.cat(got), reference(model, TOKENS)[:3], atol=2e-4)


def test_sharded_checkpoint(tmp_path: Path) -> None:
    model = build("llama", tmp_path, shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    got = Ranks(tmp_path, 1).run(Slice(TOKENS, 0, PAGES, True))[0]
    assert torch.allclose(got, reference(model, TOKENS)[-1], atol=2e-4)


def test_uneven_split_of_heads(tiny) -> None:
    folder, _ = tiny("llama")
    ranks = Ranks(folder, 2)
    assert [r.pool.shape[1] for r in ranks.runners] == [2, 1]
    assert {r.shape.kv_heads for r in ranks.runners} == {3}


def test_more_ranks_than_kv_heads(tiny) -> None:
    folder, _ = tiny("llama")
    with pytest.raises(ModelError, match="3 key/value heads") as raised:
        Ranks(folder, 4)
    assert "--tp 3" in raised.value.hint
