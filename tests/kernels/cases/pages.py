"""Prefill attention, checksums and staging over the paged pool, and the greedy token."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import pairwise

import torch

from kernels.ops.kv_pack import reference as kv_pack
from kernels.ops.page_checksum.reference import page_checksum
from kernels.ops.sample.reference import greedy
from tests.kernels.cases.case import Case, Stage, near, normal, same
from tests.kernels.cases.decode import LAYER, Setup, attention64, pool_of
from tests.kernels.small import small


@functools.cache
def _sequence(setup: Setup) -> tuple[torch.Tensor, list[int], torch.Tensor]:
    pool, pages, rows = pool_of(setup)
    return pool, pages[0], rows[0]


def prefill_cases() -> Iterator[Case]:
    for setup, start in (
        (Setup((37,)), 0),
        (Setup((40,), dim=24, heads=3, kv_heads=1, page=5), 21),
        (Setup((33,), dtype=torch.bfloat16), 32),
    ):

        def play(stage: Stage, setup: Setup = setup, start: int = start) -> None:
            pool, pages, kv = _sequence(setup)
            tokens = setup.lengths[0] - start
            q = normal(tokens, setup.heads + 1, setup.dim, dtype=setup.dtype, seed=6)[:, 1:]
            want = torch.stack(
                [attention64(q[t], kv[:, :, : start + t + 1], 0.3, None) for t in range(tokens)]
            )
            with small(stage.kernel, QUERIES=16, KEYS=16):
                plan = stage.kernel.plan_prefill(pool.to(stage.device), pages, start, tokens, q.dtype)
                put = stage.put(q, pool)
                near(stage.kernel.paged_prefill_attention(*put, LAYER, plan, 0.3), want.to(q.dtype))

        yield Case(f"{setup} from {start}", play)

    def chunks(stage: Stage) -> None:
        """A row's bits do not depend on how the prompt was cut."""
        setup = Setup((50,))
        pool, pages, _ = _sequence(setup)
        q, pool = stage.put(normal(50, setup.heads, setup.dim, seed=6), pool)
        parts = []
        with small(stage.kernel, QUERIES=16, KEYS=16):
            for cuts in ((0, 50), (0, 7, 16, 33, 50)):
                out = []
                for first, last in pairwise(cuts):
                    plan = stage.kernel.plan_prefill(pool, pages, first, last - first, q.dtype)
                    out.append(stage.kernel.paged_prefill_attention(q[first:last], pool, LAYER, plan, 0.3))
                parts.append(torch.cat(out))
        same(*parts)

    yield Case("a prompt in chunks", chunks)


def checksum_cases() -> Iterator[Case]:
    for dtype, dim in ((torch.bfloat16, 8), (torch.float32, 3)):

        def play(stage: Stage, dtype: torch.dtype = dtype, dim: int = dim) -> None:
            pool = normal(9, 3, 5, 2, 4, dim, dtype=dtype)
            found = stage.kernel.page_checksum(pool.to(stage.device), [7, 2, 3], 1, 2, 14, 2)
            same(found, page_checksum(pool, [7, 2, 3], 1, 2, 14, 2))

        yield Case(f"{dtype} x {dim}", play)


def pack_cases() -> Iterator[Case]:
    for dtype, dim in ((torch.bfloat16, 8), (torch.bfloat16, 3), (torch.float32, 4)):

        def play(stage: Stage, dtype: torch.dtype = dtype, dim: int = dim) -> None:
            pool, pages = normal(6, 4, 3, 2, 5, dim, dtype=dtype), torch.tensor([4, 0, 5])
            want = kv_pack.kv_pack(pool, pages, (1, 3))
            found = stage.kernel.kv_pack(*stage.put(pool, pages), (1, 3))
            same(found, want)
            other = stage.put(torch.zeros_like(pool))[0]
            stage.kernel.kv_unpack(other, *stage.put(pages), (1, 3), found)
            wanted = torch.zeros_like(pool)
            kv_pack.kv_unpack(wanted, pages, (1, 3), want)
            same(other, wanted)

        yield Case(f"{dtype} x {dim}", play)


def sample_cases() -> Iterator[Case]:
    def play(stage: Stage) -> None:
        logits = torch.randint(-3, 4, (6, 70), generator=torch.Generator().manual_seed(1)).float()
        logits[1] = float("-inf")
        logits[1, 33] = -5.0
        logits[2] = 0.0
        for own in (logits, logits.bfloat16(), normal(70, 6).T):
            with small(stage.kernel, BLOCK=32):
                same(stage.kernel.greedy(own.to(stage.device)), greedy(own.float()))

    yield Case("ties, one finite logit, a transposed row", play)
