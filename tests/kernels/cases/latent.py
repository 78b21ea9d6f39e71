"""MLA and sparse decode, and the compressors: nothing chosen, whole blocks of nothing, every target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kernels.ops.compress.reference import compress
from kernels.ops.mla_decode.reference import mla_decode
from kernels.ops.sparse_decode.reference import sparse_decode
from kernels.ops.splits import SplitPlan, SplitWorkspace
from tests.kernels.cases.case import Case, Stage, near, normal, poisoned, same


def workspace(
    stage: Stage, batch: int, heads: int, values: int, tokens: int, block: int = 16
) -> SplitWorkspace:
    plan = SplitPlan.of(
        max_batch=batch, heads=heads, kv_heads=max(1, heads // 16), dim=values, max_tokens=tokens, block=block
    )
    work = SplitWorkspace(plan, stage.device)
    stage.fresh(work.rows, work.lse)
    return work


@dataclass(frozen=True)
class Latent:
    lengths: tuple[int, ...]
    heads: int = 4
    values: int = 32
    rest: int = 16
    page: int = 8
    dtype: torch.dtype = torch.float32

    def operands(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, a layer's view of a pool, table, lengths; what is no token is NaN."""
        width = max(1, max(-(-n // self.page) for n in self.lengths))
        dim = self.values + self.rest
        pool = poisoned(len(self.lengths) * width + 2, 2, self.page, dim, dtype=self.dtype)
        order = torch.randperm(len(self.lengths) * width, generator=torch.Generator().manual_seed(3))
        table = order.view(len(self.lengths), width).int()
        for row, length in enumerate(self.lengths):
            rows = normal(length, dim, dtype=self.dtype, seed=row)
            for at in range(length):
                pool[table[row, at // self.page], 1, at % self.page] = rows[at]
        q = normal(len(self.lengths), self.heads, dim, dtype=self.dtype, seed=9)
        return q, pool[:, 1], table, torch.tensor(self.lengths, dtype=torch.int32)


def mla_cases() -> Iterator[Case]:
    for setup, targets in (
        (Latent((1, 8, 0, 130)), (None, 1, 3, 10**6)),
        (Latent((40, 7), heads=32, values=24, rest=8, page=5), (5,)),
        (Latent((33,), heads=1, rest=0, dtype=torch.bfloat16), (None,)),
    ):

        def play(stage: Stage, setup: Latent = setup, targets: Sequence[int | None] = targets) -> None:
            operands = setup.operands()
            want = mla_decode(
                *(t.double() if t.is_floating_point() else t for t in operands), setup.values, 0.2
            )
            first = None
            for target in targets:
                work = workspace(stage, len(setup.lengths), setup.heads, setup.values, max(setup.lengths))
                found = stage.kernel.mla_decode(*stage.put(*operands), setup.values, 0.2, work, target)
                near(found, want.to(setup.dtype))
                first = found if first is None else first
                same(found, first)

        yield Case(f"{setup}", play)


def _slots(rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int64)


def _sparse(name: str, slots: tuple[torch.Tensor, torch.Tensor], heads: int = 4, sinks: bool = True) -> Case:
    def play(stage: Stage) -> None:
        q, caches = normal(slots[0].shape[0], heads, 24), (normal(50, 24, seed=1), normal(90, 24, seed=2))
        for cache, own in zip(caches, slots, strict=True):
            unused = torch.ones(cache.shape[0], dtype=torch.bool)
            unused[own[own >= 0]] = False
            cache[unused] = float("nan")
        on = normal(heads, seed=4) if sinks else None
        want = sparse_decode(q, caches, slots, 16, 0.3, on)
        put = [tuple(stage.put(*pair)) for pair in (caches, slots)]
        at = None if on is None else on.to(stage.device)
        for target in (None, 1, 3):
            work = workspace(stage, q.shape[0], heads, 16, slots[0].shape[1] + slots[1].shape[1])
            found = stage.kernel.sparse_decode(q.to(stage.device), *put, 16, 0.3, at, work, target)
            near(found, want)

    return Case(name, play)


def sparse_cases() -> Iterator[Case]:
    draw = torch.Generator().manual_seed(5)
    window = torch.stack([torch.randperm(50, generator=draw)[:20] for _ in range(3)])
    chosen = torch.stack([torch.randperm(90, generator=draw)[:70] for _ in range(3)])
    chosen[0, 5::2] = -1
    chosen[1, :48] = -1  # three whole blocks of nothing
    chosen[2] = -1
    yield _sparse("window and chosen, holes and blocks of nothing", (window, chosen))
    nothing = torch.full((3, 40), -1, dtype=torch.int64)
    yield _sparse("nothing at all", (nothing[:, :8], nothing), sinks=False)
    yield _sparse("nothing but sinks", (nothing[:, :8], nothing))
    yield _sparse("no window", (nothing[:1, :0], chosen[:1]), heads=32)
    yield _sparse("one entry", (_slots([[-1, 7, -1]]), _slots([[-1]])))


def compress_cases() -> Iterator[Case]:
    for ratio, dim, dtype in ((8, 24, torch.float32), (128, 16, torch.bfloat16), (1, 3, torch.float32)):

        def play(stage: Stage, ratio: int = ratio, dim: int = dim, dtype: torch.dtype = dtype) -> None:
            kv, gate = (normal(3, ratio, dim, dtype=dtype, seed=s) for s in (1, 2))
            bias = normal(ratio, dim, seed=3)
            near(stage.kernel.compress(*stage.put(kv, gate, bias)), compress(kv, gate, bias), floor=1e-4)

        yield Case(f"windows of {ratio} x {dim} {dtype}", play)

    def overlap(stage: Stage) -> None:
        kv, gate, bias = normal(5, 4, 40), normal(5, 4, 40, seed=1) * 4, normal(4, 40, seed=2)
        previous = torch.tensor([-1, 0, 1, -1, 3], dtype=torch.int32)
        found = stage.kernel.compress(*stage.put(kv, gate, bias, previous))
        near(found, compress(kv, gate, bias, previous), floor=1e-4)

    yield Case("with the window before", overlap)
