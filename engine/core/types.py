"""Requests, sequences and batches: plain structs that also travel between processes as msgpack."""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["prefill", "decode", "both"]
Stage = Literal[
    "waiting",  # no pages yet, or not in a batch yet
    "prefilling",  # prompt tokens are being computed
    "inflight",  # prefill role: computed, KV not handed over yet
    "preallocated",  # decode role: pages taken, Want sent, no chunk yet
    "transferring",  # decode role: chunks arrive
    "ready",  # decode role: KV complete, not in a batch yet
    "running",  # tokens are being generated
    "done",
    "failed",
    "aborted",
]
TERMINAL: frozenset[str] = frozenset({"done", "failed", "aborted"})


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """`temperature` 0 is greedy. `top_k` 0 and `top_p` 1 switch those filters off.

    `logprobs` asks for log probabilities: of each token, and of so many of the most likely ones.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to serve. `room` and `peer` (host:port of the prefill's link) are set on P/D legs.

    The output follows `grammar`, of which the prompt's last `earlier` tokens are the beginning.
    """

    id: str
    prompt: list[int]
    sampling: Sampling
    grammar: str | None = None
    earlier: int = 0
    room: int | None = None
    peer: str | None = None


class Logprob(msgspec.Struct, frozen=True):
    """Natural logarithm of a token's probability under the model, before temperature and filters.

    `top` are the most likely tokens and theirs, the likeliest first.
    """

    value: float
    top: list[tuple[int, float]] = []


class Sampled(msgspec.Struct, frozen=True):
    """A sampled token; `logprob` where the request asks for it."""

    token: int
    logprob: Logprob | None = None


# What prefill hands to decode besides KV: sampling is seeded by position, so decode needs no more state.
FirstToken = Sampled


class Slice(msgspec.Struct, array_like=True):
    """A run of one sequence's tokens in a batch.

    `tokens` occupy positions start..start+len(tokens); `pages` are all pages of the sequence, in logical
    order, as local page ids; `sample` asks for logits of the last token.
    """

    tokens: list[int]
    start: int
    pages: list[int]
    sample: bool


class Batch(msgspec.Struct, array_like=True):
    """One forward step: what every rank computes, in this order."""

    step: int
    slices: list[Slice]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a KV page looks like; equal on both sides of an edge, but for page size and heads of a rank.

    A page of a rank is one contiguous block [kv_head, layer, k/v, slot, dim]. Ranks share out the heads, or
    each holds all of them when the cache is `replicated`. The block is `opaque` where the model lays it out
    itself, as the families with latent or compressed entries do: `head_dim` times `itemsize` is then its
    size by `page_size` and 2, it moves whole, so that page sizes are equal, and of a sequence's pages the
    first `state_pages` hold what it keeps of its latest tokens only, and change with each of them.
    """

    layers: int
    kv_heads: int
    head_dim: int
    page_size: int
    itemsize: int
    replicated: bool = False
    opaque: bool = False
    state_pages: int = 0

    @property
    def chunks(self) -> int:
        """Pieces [slot, dim] of one KV head of one page: keys and values of all layers."""
        return self.layers * 2

    @property
    def head_bytes(self) -> int:
        """Bytes of one KV head of one page, over all layers."""
        return self.chunks * self.page_size * self.head_dim * self.itemsize

    def heads(self, tp: int, rank: int) -> tuple[int, int]:
        """Half-open range of the KV heads that a rank of `tp` holds."""
        return (0, self.kv_heads) if self.replicated else split_heads(self.kv_heads, tp, rank)


def split_heads(kv_heads: int, tp: int, rank: int) -> tuple[int, int]:
    """Half-open KV head range of a rank; the first `kv_heads % tp` ranks hold one more (3 over 2: 2, 1)."""
    base, extra = divmod(kv_heads, tp)
    first = rank * base + min(rank, extra)
    return first, first + base + (rank < extra)
