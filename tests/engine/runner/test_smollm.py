"""The real small model: the same logits as transformers, the same tokens whatever the batch or the chunks."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from engine.core.types import Slice
from tests.engine.models.tiny import Ranks

PROMPTS = ("The capital of France is", "def fibonacci(n):\n    ", "1, 1, 2, 3, 5, 8, 13,")


@pytest.fixture(scope="module")
def prompts(smollm: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(smollm / "tokenizer.json"))
    return [tokenizer.encode(p).ids for p in PROMPTS]


def pages(sequence: int) -> list[int]:
    return list(range(sequence * 16, sequence * 16 + 16))


def generate(ranks: Ranks, prompts: list[list[int]], first: int, count: int, chunk: int) -> list[list[int]]:
    """Greedy tokens of all prompts together; sequence i uses pages(first + i)."""
    out: list[list[int]] = []
    for i, prompt in enumerate(prompts):
        for start in range(0, len(prompt), chunk):
            part = Slice(prompt[start : start + chunk], start, pages(first + i), True)
            logits = ranks.run(part)
        out.append([int(logits[0].argmax())])
    for n in range(count - 1):
        slices = [Slice([out[i][-1]], len(p) + n, pages(first + i), True) for i, p in enumerate(prompts)]
        for tokens, row in zip(out, ranks.run(*slices), strict=True):
            tokens.append(int(row.argmax()))
    return out


def test_logits_equal_transformers(smollm: Path, prompts: list[list[int]]) -> None:
    model = AutoModelForCausalLM.from_pretrained(smollm, dtype=torch.float32).eval()
    with torch.no_grad():
        want = [model(torch.tensor([p])).logits[0, -1] for p in prompts]
    del model
    gc.collect()
    ranks = Ranks(smollm)
    got = ranks.run(*(Slice(p, 0, pages(i), True) for i, p in enumerate(prompts)))
    assert torch.allclose(got, torch.stack(want), atol=5e-4)


def test_tokens_do_not_depend_on_batch_or_chunks(smollm: Path, prompts: list[list[int]]) -> None:
    ranks = Ranks(smollm)
    together = generate(ranks, prompts, 0, 12, chunk=1000)
    alone = [generate(ranks, [p], 0, 12, chunk=2)[0] for p in prompts]
    assert alone == together


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-5), ("bfloat16", 1e-2)])
def test_decode_logits_do_not_depend_on_the_batch(
    smollm: Path, prompts: list[list[int]], dtype: str, atol: float
) -> None:
    ranks = Ranks(smollm, dtype=dtype)
    ranks.run(*(Slice(p, 0, pages(i), True) for i, p in enumerate(prompts)))
    steps = [Slice([30], len(p), pages(i), True) for i, p in enumerate(prompts)]
    together = ranks.run(*steps)
    alone = torch.cat([ranks.run(s) for s in steps])
    assert torch.allclose(alone, together, rtol=0, atol=atol)


def test_three_ranks_say_the_same(smollm: Path, prompts: list[list[int]]) -> None:
    one = generate(Ranks(smollm), prompts, 0, 8, chunk=1000)
    gc.collect()
    assert generate(Ranks(smollm, 3), prompts, 0, 8, chunk=1000) == one
