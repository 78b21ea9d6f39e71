"""What a page list carries from one pool to another is all of a sequence's state.

A compressor's pending tokens are missed only when their entry is complete, a window's only while it lasts:
so the hand-over happens at every residue of both, and tokens are compared far beyond it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.core.types import Slice
from tests.engine.models.deepseek import build_deepseek, one_thread, reference  # noqa: F401
from tests.engine.models.tiny import Ranks

PAGE = 16
LENGTHS = range(17, 41)  # every residue of window 6 and ratios 4 and 8
FURTHER = 17  # more than twice the largest ratio
TOKENS = torch.randint(0, 101, (LENGTHS.stop + FURTHER,), generator=torch.Generator().manual_seed(5)).tolist()
POOL = 400


@pytest.fixture(scope="module", params=["deepseek_v32", "deepseek_v4"])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, torch.Tensor]:
    folder = tmp_path_factory.mktemp(request.param)
    return folder, reference(build_deepseek(request.param, folder), TOKENS)


def lists(state: int) -> list[list[int]]:
    """A page list for each length, for its tokens and those after."""
    each = state - (-(LENGTHS.stop + FURTHER) // PAGE)
    return [list(range(i * each, (i + 1) * each)) for i in range(len(LENGTHS))]


def handed_over(prefill: Ranks, decode: Ranks) -> list[list[int]]:
    """Compute a prompt of each length on one side, carry its pages to the other; there the page lists."""
    state = prefill.runners[0].shape.state_pages
    src, dst = lists(state), lists(state)[::-1]
    prefill.run(*(Slice(TOKENS[:n], 0, pages, True) for n, pages in zip(LENGTHS, src, strict=True)))
    for runner in decode.runners:
        runner.pool.fill_(0xFF)  # no number in any dtype
        for length, mine, theirs in zip(LENGTHS, src, dst, strict=True):
            count = state - (-length // PAGE)
            runner.pool[theirs[:count]] = prefill.runners[0].pool[mine[:count]]
    return dst


def worst(decode: Ranks, pages: list[list[int]], want: torch.Tensor) -> torch.Tensor:
    """[lengths]: the greatest difference of any logit in FURTHER tokens; NaN counts as endless."""
    found = torch.zeros(len(LENGTHS))
    for step in range(FURTHER):
        at = [length + step for length in LENGTHS]
        got = decode.run(*(Slice([TOKENS[p]], p, own, True) for p, own in zip(at, pages, strict=True)))
        found = torch.maximum(found, (got - want[at]).abs().amax(1).nan_to_num(torch.inf, torch.inf))
    return found


@pytest.mark.parametrize("tp", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_every_residue(made: tuple[Path, torch.Tensor], tp: int) -> None:
    folder, want = made
    prefill, decode = (Ranks(folder, ranks, pages=POOL, page_size=PAGE) for ranks in (4 - tp, tp))
    assert (worst(decode, handed_over(prefill, decode), want) < 2e-4).all()


def test_what_is_not_carried_is_missed(made: tuple[Path, torch.Tensor]) -> None:
    """The same comparison with one page left out sees it, whichever it is: of state, or of entries."""
    folder, want = made
    prefill, decode = (Ranks(folder, pages=POOL, page_size=PAGE) for _ in "ab")
    pages = handed_over(prefill, decode)
    state = prefill.runners[0].shape.state_pages
    lost = torch.arange(len(LENGTHS)) % (state + 1)
    for own, page in zip(pages, lost.tolist(), strict=True):
        decode.runners[0].pool[own[page]] = 0
    found = worst(decode, pages, want)
    # A compressor has nothing pending at some lengths, so each page is left out at several.
    assert all(found[lost == page].max() > 1e-3 for page in range(state + 1))
