"""KV bytes really move: in chunks while the prompt is computed, and for many rooms at once."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.core.types import FirstToken
from tests.engine.transfer.harness import Engine, RealAgents, fill, hand_over, linked_pair, until


def whole(engine: Engine) -> torch.Tensor:
    """All heads of an engine's pool, ranks joined."""
    assert isinstance(engine.ranks, RealAgents)
    return torch.cat(engine.ranks.pools, dim=1)


def test_chunks_move_while_the_prompt_is_computed(engine: Callable[..., Engine]) -> None:
    prefill, decode = linked_pair(engine, real=True, p_tp=2)
    for rank, pool in enumerate(prefill.ranks.pools):
        fill(pool, rank and 2, seed=1)
    room, src, dst = 9, [1, 2, 3, 4], [8, 7, 6, 5]
    prefill.transfer.open(room, "p")
    prefill.transfer.chunk(room, src[:2], 1)
    decode.transfer.request(room, "d", prefill.address)
    decode.transfer.grant(room, dst, 7)
    until(lambda: decode.transfer.rooms()[room]["stage"] == "transferring", "the first page arrived")
    assert not whole(decode)[dst[1:]].any()
    prefill.transfer.chunk(room, src, 3)
    prefill.transfer.computed(room, 7, src, FirstToken(token=11))
    until(lambda: ("ready", room, 11) in decode.sink.events, "the room is ready")
    assert torch.equal(whole(decode)[dst], whole(prefill)[src])


def test_many_rooms_at_once(engine: Callable[..., Engine]) -> None:
    prefill, decode = linked_pair(engine, real=True, p_tp=1, d_tp=2, pages=64)
    fill(prefill.ranks.pools[0], 0, seed=2)
    rooms = {n: ([3 * n, 3 * n + 1, 3 * n + 2], [62 - 3 * n, 61 - 3 * n, 60 - 3 * n]) for n in range(20)}
    for room, (src, dst) in rooms.items():
        hand_over(prefill, decode, room, src, dst)
    until(lambda: all("ready" in decode.sink.of(n) for n in rooms), "all rooms are ready")
    sent, got = whole(prefill), whole(decode)
    for src, dst in rooms.values():
        assert torch.equal(got[dst], sent[src])
