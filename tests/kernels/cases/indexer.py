"""The lightning indexer: its scores, which entries are chosen, and its cache with checksums."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernels.ops.index_k import reference as index_k
from kernels.ops.index_logits.reference import index_logits
from kernels.ops.topk.reference import topk
from tests.kernels.cases.case import Case, Stage, near, normal, poisoned, same


def _int32(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def topk_cases() -> Iterator[Case]:
    ties = torch.randint(-3, 4, (5, 200), generator=torch.Generator().manual_seed(2)).float()
    ties[1] = 0.0
    ties[2, ::2] = -0.0
    ties[2, 1::2] = 0.0
    ties[3] = normal(200, seed=4)
    ties[3, ::7] = float("-inf")
    ties[4] = normal(200, seed=5) * 1e-30
    for name, k, lengths in (
        ("ties, zeros of both signs, infinities", 32, [200, 200, 200, 200, 200]),
        ("lengths around k", 16, [0, 1, 15, 16, 17]),
        ("all of the row", 200, [200, 199, 0, 200, 5]),
    ):

        def play(stage: Stage, k: int = k, lengths: list[int] = lengths) -> None:
            scores = ties.clone()
            for row, length in enumerate(lengths):
                scores[row, length:] = float("nan")  # of no entry: must not be read
            same(stage.kernel.topk(*stage.put(scores, _int32(lengths)), k), topk(scores, _int32(lengths), k))

        yield Case(name, play)

    def wide(stage: Stage) -> None:
        scores = normal(1, 5000, seed=6).round(decimals=1)
        lengths = _int32([4999])
        same(stage.kernel.topk(*stage.put(scores, lengths), 512), topk(scores, lengths, 512))

    yield Case("several blocks", wide, slow=True)


def logits_cases() -> Iterator[Case]:
    for heads, dim, page, dtype in ((8, 32, 16, torch.bfloat16), (5, 24, 7, torch.float32)):

        def play(
            stage: Stage, heads: int = heads, dim: int = dim, page: int = page, dtype: torch.dtype = dtype
        ) -> None:
            lengths = [70, 1, 0, page]
            q, weights = normal(4, heads, dim, dtype=dtype), normal(4, heads, seed=1)
            cache = poisoned(40, page, dim, dtype=dtype)
            table = torch.randperm(40, generator=torch.Generator().manual_seed(3))[: 4 * 10].view(4, 10).int()
            for row, length in enumerate(lengths):
                for at in range(length):
                    key = normal(dim, dtype=dtype, seed=100 * row + at)
                    cache[table[row, at // page], at % page] = key
            operands = (q, weights, cache, table, _int32(lengths))
            found = stage.kernel.index_logits(*stage.put(*operands), 70)
            near(found, index_logits(*operands, 70), floor=1e-4)

        yield Case(f"{heads} x {dim} page {page} {dtype}", play)


def index_k_cases() -> Iterator[Case]:
    slots, places = torch.tensor([5, 0, -1, 19, 7]), torch.tensor([2, 19, -1, 0, 11])
    positions = _int32([100, 3, 9, 1 << 20, 4])

    def stored(stage: Stage) -> None:
        want, found = (
            (poisoned(20, 24, dtype=torch.bfloat16), torch.zeros(20, dtype=torch.int32)) for _ in "ab"
        )
        for rows in (normal(5, 24), normal(5, 24, seed=1).bfloat16()):
            index_k.write_index_k(*want, rows, slots, places, positions)
            at = stage.put(*found)
            stage.kernel.write_index_k(*at, *stage.put(rows, slots, places, positions))
            for a, b in zip(at, want, strict=True):
                same(a, b)

    def checked(stage: Stage) -> None:
        cache, sums = torch.zeros(20, 24, dtype=torch.bfloat16), torch.zeros(20, dtype=torch.int32)
        index_k.write_index_k(cache, sums, normal(5, 24), slots, places, positions)
        cache[19, 23] += 1
        cache[7] = cache[5]
        found = stage.kernel.verify_index_k(*stage.put(cache, sums, slots, places, positions))
        same(found.to(torch.int8), torch.tensor([1, 1, 1, 0, 0], dtype=torch.int8))

    yield Case("rows and their checksums", stored)
    yield Case("a changed and an overwritten row", checked)
