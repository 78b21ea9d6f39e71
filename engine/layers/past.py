"""Rows that a sequence keeps of its latest tokens, in rings, together with the rows of a step.

A step sees, in this order, rows that its rings have from before, and its own. So a token finds the tokens
before it whether they are in the same step or were in an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from engine.layers.page import PageLayout
from engine.layers.rows import Rows, Run


class Places(NamedTuple):
    """Of rows in rings: positions int64 [n] and the state pages int64 [n, state_pages] of their sequences."""

    at: torch.Tensor
    pages: torch.Tensor


@dataclass(frozen=True)
class Past:
    """`before`: what a step reads of rings; `kept` int64 [n]: its own rows that go into them, at `after`."""

    before: Places
    kept: torch.Tensor
    after: Places

    def join(
        self, layout: PageLayout, name: str, layer: int, pool: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        """[before + real, width]: what the ring has from before, then rows; those to be kept are stored."""
        table = layout.table(pool, name)
        found = table.index_select(0, layout.ring(name, layer, self.before.pages, self.before.at))
        table.index_copy_(
            0, layout.ring(name, layer, self.after.pages, self.after.at), rows.index_select(0, self.kept)
        )
        return torch.cat((found, rows))


class Joined(NamedTuple):
    """A Past, and for each run of its step what to add to a position for its row in `Past.join`: to one from
    before the step, and to one in it; positions before `since` have none."""

    past: Past
    before: list[int]
    within: list[int]
    since: list[int]

    def row(self, run: int, start: int, position: int) -> int:
        """Where run number `run`, that begins at `start`, finds a position from `since` on."""
        return position + (self.before if position < start else self.within)[run]

    def latest(self, rows: Rows, count: int) -> torch.Tensor:
        """int64 [real, count]: where each row finds the last `count` positions up to its own; below 0 when
        nowhere."""
        back = torch.arange(count - 1, -1, -1, device=rows.tokens.device)
        at = rows.positions[: rows.real, None] - back
        starts = [run.start for run in rows.runs]
        values = zip(starts, self.before, self.within, self.since, strict=True)
        start, before, within, since = rows.each([list(v) for v in values])[:, :, None].unbind(1)
        return torch.where(at < since, -1, at + torch.where(at < start, before, within))


def join_rows(rows: Rows, state_pages: int, length: int, since: list[int]) -> Joined:
    """For rings of `length`; each run of the step reads positions from `since` on that came before it."""
    old_at: list[int] = []
    old_runs: list[Run] = []
    new_at: list[int] = []
    new_runs: list[Run] = []
    kept: list[int] = []
    before = []
    for run, first in zip(rows.runs, since, strict=True):
        before.append(len(old_at) - first)
        old_at += range(first, run.start)
        old_runs += [run] * max(0, run.start - first)
        end = run.start + run.last - run.first
        for position in range(max(run.start, end - length), end):
            new_at.append(position)
            new_runs.append(run)
            kept.append(run.first + position - run.start)
    within = [len(old_at) + run.first - run.start for run in rows.runs]
    device = rows.tokens.device

    def places(at: list[int], runs: list[Run]) -> Places:
        pages = [run.pages[:state_pages] for run in runs]
        table = torch.tensor(pages, dtype=torch.int64, device=device).view(len(at), state_pages)
        return Places(torch.tensor(at, dtype=torch.int64, device=device), table)

    past = Past(
        places(old_at, old_runs),
        torch.tensor(kept, dtype=torch.int64, device=device),
        places(new_at, new_runs),
    )
    return Joined(past, before, within, since)
