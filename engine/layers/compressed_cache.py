"""What DeepSeek-V4 caches of a sequence, where it lies, and how a step finds it.

Of the latest tokens: keys of a window, and what a compressor has not put into an entry yet. Of all tokens:
compressed entries, and index-K of those that an indexer chooses from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from engine.core.errors import ModelError
from engine.layers.indexer import Choice, IndexCache, index_sections
from engine.layers.page import PageLayout, Section
from engine.layers.past import Past, join_rows
from engine.layers.rotary import Rotary, Turn
from engine.layers.rows import Rows, planned
from engine.layers.shard import Shard
from engine.weights import CompressedConfig, ModelConfig

WINDOW, SPARSE, HEAVY = "window", "sparse", "heavy"
PENDING = {SPARSE: "sparse_pending", HEAVY: "heavy_pending", "index": "index_pending"}


@dataclass(frozen=True)
class Closing:
    """The entries that a step completes, in windows of tokens.

    `windows` int64 [n, ratio]: rows of `past`, of `own` int64 [entries] the windows of the entries, of
    `previous` int32 [n] the window before each (below 0: none; no tensor where entries do not overlap).
    `numbers` int64 [entries] count a sequence's entries; `pages` int64 [entries] and `turn` are theirs.
    """

    past: Past
    windows: torch.Tensor
    own: torch.Tensor
    previous: torch.Tensor | None
    numbers: torch.Tensor
    pages: torch.Tensor
    turn: Turn


@dataclass(frozen=True)
class CompressedStep:
    """`seen` int64 [real, window]: rows of `window` that each row sees, below 0 for none. `choice`: what each
    row's indexer chooses from. `heavy_entries` int64 [real, n]: numbers of the entries each row sees.
    `pages` int64 [real, n]: of each row's sequence, those with entries."""

    rows: Rows
    main: Turn
    compress: Turn
    window: Past
    seen: torch.Tensor
    closing: dict[str, Closing]
    choice: Choice
    heavy_entries: torch.Tensor
    pages: torch.Tensor

    @cached_property
    def tensors(self) -> list[torch.Tensor]:
        return list(planned(self))


class CompressedCache:
    def __init__(self, config: ModelConfig, own: CompressedConfig, page_size: int, shard: Shard) -> None:
        self.config, self.page_size = own, page_size
        self.ratios = {SPARSE: own.sparse, HEAVY: own.heavy}
        for ratio in self.ratios.values():
            if page_size % ratio:
                raise ModelError(
                    "bad_page_size",
                    f"This model puts {ratio} tokens into an entry, of which a page of {page_size} tokens "
                    "holds no whole number.",
                    f"Start with --page-size {-(-page_size // ratio) * ratio}.",
                )
        # A layer's number among those of its kind.
        self.number = [own.spans[:i].count(span) for i, span in enumerate(own.spans)]
        sparse, heavy = own.spans.count("sparse"), own.spans.count("heavy")
        dim, kind = config.head_dim, shard.dtype
        entries = [
            Section(SPARSE, sparse, page_size // own.sparse, dim, kind),
            Section(HEAVY, heavy, page_size // own.heavy, dim, kind),
            *index_sections(sparse, page_size // own.sparse, own.index.dim),
        ]
        rings = [
            Section(WINDOW, config.layers, own.window, dim, kind),
            Section(PENDING[SPARSE], sparse, 2 * own.sparse, 4 * dim, kind),
            Section(PENDING["index"], sparse, 2 * own.sparse, 4 * own.index.dim, kind),
            Section(PENDING[HEAVY], heavy, own.heavy, 2 * dim, kind),
        ]
        self.layout = PageLayout(page_size, entries, rings)
        self.index = IndexCache(
            self.layout, own.sparse, [i for i, span in enumerate(own.spans) if span == SPARSE]
        )
        self.main = Rotary(own.rope, config.rope_theta, None, shard, interleaved=True)
        self.compress = Rotary(own.rope, own.theta, own.scaling, shard, interleaved=True)

    def plan(self, rows: Rows) -> CompressedStep:
        own = rows.positions[: rows.real]
        window, state = self.config.window, self.layout.state_pages
        joined = join_rows(rows, state, window, [max(0, run.start - window + 1) for run in rows.runs])
        pages = rows.pages(self.page_size, state)
        lengths = (own + 1) // self.config.sparse
        heavy = (own + 1) // self.config.heavy
        numbers = torch.arange(int(heavy.max()), device=own.device).expand(rows.real, -1)
        return CompressedStep(
            rows,
            self.main.at(rows.positions),
            self.compress.at(rows.positions),
            joined.past,
            joined.latest(rows, window),
            {span: self._closing(rows, ratio, span == SPARSE) for span, ratio in self.ratios.items()},
            Choice(pages.to(torch.int32), lengths.to(torch.int32), int(lengths.max())),
            numbers.masked_fill(numbers >= heavy[:, None], -1),
            pages,
        )

    def _closing(self, rows: Rows, ratio: int, overlap: bool) -> Closing:
        """`overlap`: an entry is also made from the window before its own."""
        state, back = self.layout.state_pages, ratio if overlap else 0
        since = [max(0, run.start // ratio * ratio - back) for run in rows.runs]
        joined = join_rows(rows, state, ratio + back, since)
        windows: list[list[int]] = []
        previous: list[int] = []
        own: list[int] = []
        numbers: list[int] = []
        pages: list[int] = []
        for i, run in enumerate(rows.runs):
            first, last = run.start // ratio, (run.start + run.last - run.first) // ratio
            for number in range(first - (overlap and first > 0), last if last > first else 0):
                window = range(number * ratio, (number + 1) * ratio)
                windows.append([joined.row(i, run.start, position) for position in window])
                previous.append(len(windows) - 2 if number >= first and number > 0 else -1)
                if number >= first:
                    own.append(len(windows) - 1)
                    numbers.append(number)
                    pages.append(run.pages[state + number * ratio // self.page_size])
        device = rows.tokens.device
        counted = torch.tensor(numbers, dtype=torch.int64, device=device)
        return Closing(
            joined.past,
            torch.tensor(windows, dtype=torch.int64, device=device).view(-1, ratio),
            torch.tensor(own, dtype=torch.int64, device=device),
            torch.tensor(previous, dtype=torch.int32, device=device) if overlap else None,
            counted,
            torch.tensor(pages, dtype=torch.int64, device=device),
            self.compress.at(counted * ratio),
        )

    def offset(self, name: str, number: int) -> int:
        """What to add to a row of a section's first layer for that of layer `number` of its kind."""
        return self.layout.entry(name, number) - self.layout.entry(name, 0)

    def slots(self, name: str, number: int, chosen: torch.Tensor, step: CompressedStep) -> torch.Tensor:
        """Rows of a section's table for numbers of entries int64 [real, n], below 0 for none."""
        at = chosen.clamp(min=0)
        page = step.pages.gather(1, at * self.ratios[name] // self.page_size)
        found = self.layout.slots(name, page, at) + self.offset(name, number)
        return torch.where(chosen < 0, chosen, found)
