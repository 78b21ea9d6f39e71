"""DeepSeek's families: logits equal transformers', whatever the ranks and the cuts of the prompt."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from engine.core.errors import ModelError
from engine.core.types import Slice
from tests.engine.models.deepseek import build_deepseek, one_thread, reference  # noqa: F401
from tests.engine.models.tiny import Ranks, ranks_at_odds

NAMES = ("deepseek_v32", "deepseek_v32_yarn", "deepseek_v4")
TOKENS = torch.randint(0, 101, (61,), generator=torch.Generator().manual_seed(0)).tolist()
PAGE = 16
PAGES = [9, 3, 40, 1, 22, 8, 17, 5, 60, 2, 33, 12, 50, 51, 28, 44, 45, 46, 30, 31, 7, 6, 4, 11]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, torch.Tensor]]:
    """Each checkpoint's folder and transformers' logits of TOKENS."""
    found = {}
    for name in NAMES:
        folder = tmp_path_factory.mktemp(name)
        found[name] = (folder, reference(build_deepseek(name, folder), TOKENS))
    return found


@pytest.mark.parametrize("tp", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_prefill_then_decode(made, name: str, tp: int) -> None:
    folder, want = made[name]
    ranks = Ranks(folder, tp, page_size=PAGE)
    got = [ranks.run(Slice(TOKENS[:30], 0, PAGES, True))]
    got += [ranks.run(Slice([TOKENS[p]], p, PAGES, True)) for p in range(30, len(TOKENS))]
    assert torch.allclose(torch.cat(got), want[29:], atol=2e-4)
    pools = [runner.pool for runner in ranks.runners]
    assert all(torch.equal(pool, pools[0]) for pool in pools[1:]), "every rank holds the same cache"


@pytest.mark.parametrize("name", NAMES[::2])
def test_every_row_of_a_prompt_cut_anywhere(made, name: str) -> None:
    """Also where a window of tokens that becomes one entry, or the sliding window, is cut."""
    folder, want = made[name]
    ranks = Ranks(folder, page_size=PAGE)
    for start, stop in itertools.pairwise((0, 1, 3, 4, 9, 11, 12, 20, 33, 35, 61)):
        got = ranks.run(Slice(TOKENS[start:stop], start, PAGES, True))
        assert torch.allclose(got[0], want[stop - 1], atol=2e-4), (start, stop)


@pytest.mark.parametrize("name", NAMES[::2])
def test_a_batch_of_everything_equals_each_alone(made, name: str) -> None:
    folder, want = made[name]
    ranks = Ranks(folder, page_size=PAGE)
    other = [page for page in range(61) if page not in PAGES][:24]
    ranks.run(Slice(TOKENS[:40], 0, PAGES, True))
    ranks.run(Slice(TOKENS[:20], 0, other, True))
    got = ranks.run(Slice(TOKENS[20:31], 20, other, True), Slice([TOKENS[40]], 40, PAGES, True))
    assert torch.allclose(got, want[[30, 40]], atol=2e-4)


@pytest.mark.parametrize("name", NAMES[::2])
def test_ranks_that_want_different_rows_take_the_most(made, name: str) -> None:
    folder, want = made[name]
    with ranks_at_odds():
        ranks = Ranks(folder, 2, page_size=PAGE)
    got = [ranks.run(Slice([TOKENS[p]], p, PAGES, True)) for p in range(3)]
    assert torch.allclose(torch.cat(got), want[:3], atol=2e-4)


@pytest.mark.parametrize("name", NAMES[::2])
def test_bfloat16_is_near(made, name: str) -> None:
    """Few entries, so that rounding does not change which are chosen."""
    folder, want = made[name]
    got = Ranks(folder, 2, "bfloat16", page_size=PAGE).run(Slice(TOKENS[:8], 0, PAGES, True))[0]
    assert torch.nn.functional.cosine_similarity(got, want[7], dim=0) > 0.99


def test_a_page_that_entries_do_not_fill_is_refused_with_the_size_that_is_right(made) -> None:
    with pytest.raises(ModelError, match="8 tokens into an entry") as raised:
        Ranks(made["deepseek_v4"][0], page_size=12)
    assert "--page-size 16" in raised.value.hint


def test_a_pool_that_holds_no_sequence_is_refused(made) -> None:
    with pytest.raises(ModelError, match="keeps 10 pages"):
        Ranks(made["deepseek_v4"][0], page_size=PAGE, pages=11)


@pytest.mark.parametrize(("name", "parts"), [("deepseek_v32", "attention"), ("deepseek_v4", "output")])
def test_more_ranks_than_parts(made, name: str, parts: str) -> None:
    with pytest.raises(ModelError, match=f"4 .*{parts}.*heads.*4 ranks"):
        Ranks(made[name][0], 5, page_size=PAGE)


@pytest.mark.parametrize("name", NAMES[::2])
def test_a_tokens_bits_depend_neither_on_its_company_nor_on_the_cuts(made, name: str) -> None:
    """What a pair says equals what one engine says because of this, and not because logits are far apart."""
    ranks = Ranks(made[name][0], page_size=PAGE, pages=256)
    each = ranks.runners[0].shape.state_pages + 3
    pages = [list(range(i * each, (i + 1) * each)) for i in range(7)]
    lengths = [20 + 3 * i for i in range(7)]
    whole = [
        Slice(TOKENS[i : i + n], 0, own, True) for i, (n, own) in enumerate(zip(lengths, pages, strict=True))
    ]
    alone = torch.cat([ranks.run(piece) for piece in whole])
    assert torch.equal(ranks.run(*whole), alone)
    steps = [Slice([5 + i], n, own, True) for i, (n, own) in enumerate(zip(lengths, pages, strict=True))]
    together = ranks.run(*steps)
    for piece, first in zip(whole, alone, strict=True):
        for start, stop in ((0, 7), (7, 8), (8, len(piece.tokens))):
            cut = ranks.run(Slice(piece.tokens[start:stop], start, piece.pages, True))
        assert torch.equal(cut[0], first)
    assert torch.equal(torch.cat([ranks.run(step) for step in steps]), together)
