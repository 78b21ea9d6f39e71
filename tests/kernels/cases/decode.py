"""Decode attention over pages: lengths around every edge, poisoned memory, the range of the CTA target."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kernels.ops.splits import SplitPlan, SplitWorkspace
from tests.kernels.cases.case import Case, Stage, near, normal, same

PAGE, LAYERS, LAYER = 8, 3, 1


@dataclass(frozen=True)
class Setup:
    lengths: tuple[int, ...]
    heads: int = 4
    kv_heads: int = 2
    dim: int = 16
    dtype: torch.dtype = torch.float32
    block: int = 16
    page: int = PAGE
    sinks: bool = False
    max_tokens: int = 0
    splits: int | None = None

    def plan(self) -> SplitPlan:
        plan = SplitPlan.of(
            max_batch=len(self.lengths) + 1,
            heads=self.heads,
            kv_heads=self.kv_heads,
            dim=self.dim,
            max_tokens=max(self.max_tokens, *self.lengths, 1),
            block=self.block,
        )
        return plan if self.splits is None else dataclasses.replace(plan, splits=self.splits)


def pool_of(setup: Setup) -> tuple[torch.Tensor, list[list[int]], list[torch.Tensor]]:
    """pool, pages per row, and keys and values [2, kv_heads, length, dim] per row; the rest is NaN."""
    generator = torch.Generator().manual_seed(5)
    counts = [-(-n // setup.page) for n in setup.lengths]
    free = torch.randperm(sum(counts) + 3, generator=generator).tolist()
    shape = (len(free), setup.kv_heads, LAYERS, 2, setup.page, setup.dim)
    pool = torch.full(shape, math.nan, dtype=setup.dtype)
    pages, rows = [], []
    for length, count in zip(setup.lengths, counts, strict=True):
        own = [free.pop() for _ in range(count)]
        kv = torch.randn(2, setup.kv_heads, length, setup.dim, generator=generator).to(setup.dtype)
        padded = torch.full((2, setup.kv_heads, count * setup.page, setup.dim), math.nan, dtype=setup.dtype)
        padded[:, :, :length] = kv
        by_page = padded.unflatten(2, (count, setup.page)).permute(2, 1, 0, 3, 4)
        pool[torch.tensor(own, dtype=torch.long), :, LAYER] = by_page
        pages.append(own)
        rows.append(kv)
    return pool, pages, rows


def attention64(q: torch.Tensor, kv: torch.Tensor, scale: float, sinks: torch.Tensor | None) -> torch.Tensor:
    """One row's answer in float64; zero without keys."""
    if not kv.shape[2]:
        return torch.zeros(q.shape, dtype=torch.float64)
    k, v = kv.double().repeat_interleave(q.shape[0] // kv.shape[1], 1)
    scores = (k @ q.double().unsqueeze(-1)).squeeze(-1) * scale
    if sinks is None:
        weights = torch.softmax(scores, -1)
    else:
        weights = torch.softmax(torch.cat((scores, sinks.double()[:, None]), -1), -1)[:, :-1]
    return (weights.unsqueeze(1) @ v).squeeze(1)


@functools.cache
def problem(
    setup: Setup,
) -> tuple[torch.Tensor, torch.Tensor, list[list[int]], torch.Tensor | None, torch.Tensor]:
    pool, pages, rows = pool_of(setup)
    q = normal(len(setup.lengths), setup.heads + 1, setup.dim, dtype=setup.dtype, seed=3)[:, 1:]
    sinks = normal(setup.heads, seed=8) if setup.sinks else None
    want = torch.stack([attention64(*pair, 0.3, sinks) for pair in zip(q, rows, strict=True)])
    return pool, q, pages, sinks, want.to(setup.dtype)


def run(stage: Stage, setup: Setup, target: int | None = None, stale: bool = False) -> torch.Tensor:
    pool, q, pages, sinks, _ = problem(setup)
    work = SplitWorkspace(setup.plan(), stage.device)
    if stale:  # what another step left: finite, so that a wrong read is a wrong number and no NaN
        work.rows.normal_()
        work.lse.normal_(3.0)
    else:
        stage.fresh(work.rows, work.lse)
    pool, q = stage.put(pool, q)
    plan = stage.kernel.plan_decode(pool, pages, list(setup.lengths), work, target)
    on = None if sinks is None else sinks.to(stage.device)
    return stage.kernel.paged_decode_attention(q, pool, LAYER, plan, 0.3, on)


def _answers(setup: Setup, targets: Sequence[int | None] = (None,), stale: bool = False) -> Case:
    def play(stage: Stage) -> None:
        for target in targets:
            near(run(stage, setup, target, stale), problem(setup)[-1])

    return Case(f"{setup} target {targets}{' stale workspace' if stale else ''}", play)


def _sweep(setup: Setup, targets: Sequence[int], slow: bool = False) -> Case:
    """Not near but the same: the target says who works, never what is computed."""

    def play(stage: Stage) -> None:
        want = run(stage, setup)
        near(want, problem(setup)[-1])
        for target in targets:
            same(run(stage, setup, target, stale=target % 2 == 0), want)

    return Case(f"targets {min(targets)}..{max(targets)} over {setup.lengths} tokens", play, slow)


def _company(stage: Stage) -> None:
    """A row's bits alone, and among others of any length."""
    crowd = Setup((130, 7, 0, 61), max_tokens=200)
    want = run(stage, crowd)
    pool, q, pages, _, _ = problem(crowd)
    pool, q = stage.put(pool, q)
    for row in (0, 1, 3):
        work = SplitWorkspace(crowd.plan(), stage.device)
        plan = stage.kernel.plan_decode(pool, [pages[row]], [crowd.lengths[row]], work)
        alone = stage.kernel.paged_decode_attention(q[row : row + 1], pool, LAYER, plan, 0.3)
        same(alone, want[row : row + 1])


def _rising(stage: Stage) -> None:
    """More splits than are merged at a time, and the last weighs 2**128 times what is before it."""
    setup = Setup((75 * PAGE,), heads=1, kv_heads=1)
    pool, q, pages, _, _ = problem(setup)
    pool = pool.clone()
    pool[pages[0][-1], 0, LAYER, 0] = q[0, 0] * 40
    kv = pool[pages[0]][:, :, LAYER].permute(2, 1, 0, 3, 4).flatten(2, 3)
    pool, query = stage.put(pool, q)
    work = SplitWorkspace(setup.plan(), stage.device)
    stage.fresh(work.rows, work.lse)
    plan = stage.kernel.plan_decode(pool, pages, list(setup.lengths), work)
    found = stage.kernel.paged_decode_attention(query, pool, LAYER, plan, 0.3)
    near(found[0], attention64(q[0], kv, 0.3, None).to(setup.dtype), floor=1e-4)


def _far_page(stage: Stage) -> None:
    """A page whose offset in elements does not fit into 32 bits; the pool is mapped and hardly touched."""
    setup = Setup((5,), heads=1, kv_heads=1, dim=64, dtype=torch.bfloat16, page=16)
    small, q, pages, _, want = problem(setup)
    page = 2**31 // small[0].numel() + 3
    pool = torch.empty((page + 1, *small.shape[1:]), dtype=small.dtype, device=stage.device)
    pool[page] = small[pages[0][0]].to(stage.device)
    plan = stage.kernel.plan_decode(pool, [[page]], [5], SplitWorkspace(setup.plan(), stage.device))
    near(stage.kernel.paged_decode_attention(q.to(stage.device), pool, LAYER, plan, 0.3), want)


def cases() -> Iterator[Case]:
    yield _answers(Setup((1, PAGE - 1, PAGE, PAGE + 1)))
    yield _answers(Setup((0, 33, 97), sinks=True), targets=(None, 1, 4))
    yield _answers(Setup((0, 0)))
    yield _answers(Setup((150, 16), dtype=torch.bfloat16, heads=6, sinks=True), targets=(6,))
    yield _answers(Setup((9 * 16, 31), heads=1, kv_heads=1), stale=True)
    yield _answers(Setup((17, 40), dim=24, heads=3, kv_heads=1, page=5))
    yield _answers(Setup((11 * 16, 3 * 16), kv_heads=1, splits=5))
    yield _sweep(Setup((337,), kv_heads=1, heads=2), (1, 2, 3, 11, 12, 512, 10**6))
    yield _sweep(Setup((0, 1500, 40), kv_heads=1, heads=2, block=16), (3, 4, 512), slow=True)
    yield Case("a row alone and in company", _company)
    yield Case("the last of many splits weighs most", _rising)
    long = Setup((128 * 2 * 16 + 1, 4000), kv_heads=1, heads=2, block=16)
    yield _sweep(long, (1, 2, 3, 4, 7, 64, 127, 128), slow=True)
    yield _sweep(long, (129, 160, 255, 256, 257, 512, 10**6, 2**31), slow=True)
    yield Case("a pool past 32 bits", _far_page, slow=True)
