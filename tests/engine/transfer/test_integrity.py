"""What was stored on prefill is what decode answers from: checksums by logical page and group of layers."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from engine.core.types import FirstToken, split_heads
from engine.transfer import commands as c
from engine.transfer import messages as m
from engine.transfer.integrity import PageSums, Tally, groups_of, layers_per_sum
from tests.engine.transfer.harness import SHAPE, Engine, RealAgents, fill, hand_over, linked_pair, until

ON = {"PD_KV_CHECKSUM": "1"}
SRC, DST = [3, 0, 7, 9, 4], [14, 2, 1, 0, 9]


def pack(rows: list[list[int]]) -> bytes:
    return np.array(rows, dtype="<u8").tobytes()


def filled_pair(engine: Callable[..., Engine], **options: object) -> tuple[Engine, Engine]:
    """A linked pair of real agents whose decode asks for checksums; prefill's pools hold distinct bytes."""
    defaults: dict[str, object] = {"real": True, "pages": 16, "d_env": ON}
    prefill, decode = linked_pair(engine, **(defaults | options))
    assert isinstance(prefill.ranks, RealAgents)
    for rank, pool in enumerate(prefill.ranks.pools):
        fill(pool, split_heads(SHAPE.kv_heads, prefill.ranks.tp, rank)[0], seed=3)
    return prefill, decode


def counters(engine: Engine) -> tuple[object, object]:
    document = engine.transfer.counters_document()
    return document["kv_verified"], document["kv_corrupt"]


@pytest.mark.parametrize("tp", [(1, 1), (2, 1), (3, 2), (2, 3), (4, 1)])
def test_whatever_the_split_the_sums_of_both_sides_agree(
    engine: Callable[..., Engine], tp: tuple[int, int]
) -> None:
    prefill, decode = filled_pair(engine, p_tp=tp[0], d_tp=tp[1])
    hand_over(prefill, decode, 5, SRC, DST)
    until(lambda: "ready" in decode.sink.of(5), "the room is ready")
    assert counters(decode) == (1, 0)


@pytest.mark.parametrize(("here", "there"), [(4, 2), (2, 4)])
def test_sides_of_two_page_sizes_have_the_same_sums(
    engine: Callable[..., Engine], here: int, there: int, caplog: pytest.LogCaptureFixture
) -> None:
    shapes = {"p_shape": replace(SHAPE, page_size=here), "d_shape": replace(SHAPE, page_size=there)}
    prefill, decode = filled_pair(engine, p_tp=2, **shapes)
    src, dst = ([3, 0, 7], [14, 2, 1, 0, 9]) if here == 4 else ([14, 2, 1, 0, 9], [3, 0, 7])
    for room in (5, 6):
        decode.transfer.request(room, "d", prefill.address)
        decode.transfer.grant(room, dst, 9)
        prefill.transfer.open(room, "p")
        prefill.transfer.computed(room, 9, src, FirstToken(token=1))
        until(lambda room=room: decode.sink.of(room), "the room ended")
        decode.faults.arm("corrupt-page", count=1, value=len(dst) - 1)
    assert decode.sink.of(5)[0] == "done" and decode.sink.of(6)[0] == "kv_corrupt"
    assert "page 2 (tokens 8..11), layers 1" in caplog.text and "page 1" not in caplog.text


def test_ranks_that_hold_the_same_cache_are_compared_with_one_another(engine: Callable[..., Engine]) -> None:
    latent = replace(SHAPE, kv_heads=1, head_dim=12, replicated=True)
    prefill, decode = linked_pair(engine, real=True, pages=16, p_tp=2, d_tp=3, shape=latent, d_env=ON)
    assert isinstance(prefill.ranks, RealAgents)
    for pool in prefill.ranks.pools:
        fill(pool, 0, seed=3)
    hand_over(prefill, decode, 5, SRC, DST)
    until(lambda: "ready" in decode.sink.of(5), "the room is ready")
    prefill.ranks.pools[1][SRC[2], 0, 1, 0, 0, 0] += 1
    hand_over(prefill, decode, 6, SRC, DST)
    until(lambda: decode.sink.of(6) == ["kv_corrupt", "quiet"], "decode is told")
    assert prefill.sink.of(6) == ["kv_corrupt", "quiet"]
    assert counters(decode) == (1, 0) and counters(prefill) == (0, 1)


def test_chunks_and_a_last_page_that_is_half_full(engine: Callable[..., Engine]) -> None:
    prefill, decode = filled_pair(engine, p_tp=2)
    decode.transfer.request(9, "d", prefill.address)
    decode.transfer.grant(9, DST, 9)
    prefill.transfer.open(9, "p")
    prefill.transfer.chunk(9, SRC[:2], 1)
    until(lambda: decode.transfer.rooms()[9]["stage"] == "transferring", "the first page arrived")
    prefill.transfer.chunk(9, SRC, 4)
    prefill.transfer.computed(9, 9, SRC, FirstToken(token=1))
    until(lambda: "ready" in decode.sink.of(9), "the room is ready")
    assert counters(decode) == (1, 0)


def test_one_flipped_bit_fails_both_legs_and_names_page_and_layers(
    engine: Callable[..., Engine], caplog: pytest.LogCaptureFixture
) -> None:
    prefill, decode = filled_pair(engine, d_tp=2)
    decode.faults.arm("corrupt-page", count=1, value=2)
    with caplog.at_level(logging.ERROR):
        hand_over(prefill, decode, 5, SRC, DST)
        until(lambda: "quiet" in decode.sink.of(5) and "quiet" in prefill.sink.of(5), "both legs ended")
    assert decode.sink.of(5) == ["kv_corrupt", "quiet"] and prefill.sink.of(5) == ["kv_corrupt", "quiet"]
    assert counters(decode) == (0, 1)
    assert "page 2 (tokens 4..5), layers 1" in caplog.text
    hand_over(prefill, decode, 6, SRC, DST)
    until(lambda: "ready" in decode.sink.of(6), "the next room is ready")
    assert counters(decode) == (1, 1)


def test_pages_that_changed_places_are_named(
    engine: Callable[..., Engine], caplog: pytest.LogCaptureFixture
) -> None:
    prefill, decode = filled_pair(engine)
    prefill.faults.arm("swap-pages", count=1)
    with caplog.at_level(logging.ERROR):
        hand_over(prefill, decode, 5, SRC, DST)
        until(lambda: decode.sink.of(5) == ["kv_corrupt", "quiet"], "the room failed")
    assert "page 0 (tokens 0..1)" in caplog.text and "page 4 (tokens 8..9)" in caplog.text
    assert "page 1" not in caplog.text


@pytest.mark.parametrize("fault", ["corrupt-page", "swap-pages"])
def test_the_faults_are_real(engine: Callable[..., Engine], fault: str) -> None:
    prefill, decode = filled_pair(engine, d_env={})
    side = decode if fault == "corrupt-page" else prefill
    side.faults.arm(fault, count=1)
    hand_over(prefill, decode, 5, SRC, DST)
    until(lambda: "ready" in decode.sink.of(5), "the room is ready")
    assert counters(decode) == (0, 0)
    sent, got = prefill.ranks.pools[0][SRC], decode.ranks.pools[0][DST]
    wrong = (sent != got).flatten(1).sum(1).tolist()
    if fault == "corrupt-page":
        assert wrong == [1, 0, 0, 0, 0]
    else:
        assert torch.equal(got[[4, 0]], sent[[0, 4]]) and wrong[1:4] == [0, 0, 0]


def test_a_prefill_that_sends_no_sums_is_refused(engine: Callable[..., Engine]) -> None:
    prefill, decode = filled_pair(engine)
    decode.transfer.request(5, "d", prefill.address)
    decode.transfer.grant(5, DST, 10)
    done = m.Done(room=5, ticket=1, tokens=10, first=FirstToken(token=1))
    decode.transfer.message(decode.transfer.linked()[0], done)
    until(lambda: decode.sink.of(5)[:1] == ["kv_transfer_failed"], "the room failed")


def test_the_transfer_deadline_holds_while_pages_are_summed(engine: Callable[..., Engine]) -> None:
    prefill, decode = filled_pair(engine, d_env=ON | {"PD_DECODE_TRANSFER_TIMEOUT": "1"})
    assert isinstance(decode.ranks, RealAgents)
    submit = decode.ranks.threads[0].submit
    seen: list[c.Command] = []

    def without_checks(command: c.Command) -> None:
        if isinstance(command, c.Check):
            seen.append(command)
        else:
            submit(command)

    decode.ranks.threads[0].submit = without_checks  # type: ignore[method-assign]
    hand_over(prefill, decode, 5, SRC, DST)
    until(lambda: seen and decode.transfer.rooms()[5]["waiting_on"] == "checksum", "the check was asked for")
    until(lambda: "kv_transfer_timeout" in decode.sink.of(5), "the deadline fired")
    until(lambda: prefill.sink.of(5) == ["kv_transfer_timeout", "quiet"], "prefill was told")
    late = c.Checked(rank=0, room=5, ticket=seen[0].ticket, sums=b"")
    decode.transfer.on_report(late)
    assert "ready" not in decode.sink.of(5) and counters(decode) == (0, 0)


def test_ranks_that_hold_the_same_heads_must_agree_and_count_once() -> None:
    same = Tally([(0, 1), (0, 1)], layers=2, page_size=4)
    same.add(0, 0, pack([[1, 2]]))
    same.add(1, 0, pack([[1, 2]]))
    assert not same.unequal() and same.total() == PageSums(page_size=4, data=pack([[1, 2]]))
    same.add(0, 1, pack([[3, 4]]))
    same.add(1, 1, pack([[3, 5]]))
    assert same.unequal() == "page 1 (tokens 4..7), layers 1"


def test_ranks_that_share_out_the_heads_are_added_modulo_two_to_the_64() -> None:
    shared = Tally([(0, 1), (1, 2), (2, 2)], layers=1, page_size=4)
    for rank, number in enumerate([(1 << 64) - 1, 3, 0]):
        shared.add(rank, 0, pack([[number]]))
    assert shared.total().data == pack([[2]])


def test_sides_of_different_page_sizes_are_compared_by_the_larger_page() -> None:
    small = Tally([(0, 1)], layers=1, page_size=2)
    small.add(0, 0, pack([[1], [2], [5]]))
    right = PageSums(page_size=4, data=pack([[3], [5]]))
    assert not small.misfit(right, 5, 3) and small.differs(right) == ""
    wrong = PageSums(page_size=4, data=pack([[3], [6]]))
    assert small.differs(wrong) == "page 1 (tokens 4..7), layers 0"
    assert small.misfit(right, 9, 5) and small.misfit(PageSums(page_size=3, data=right.data), 5, 3)


def test_pages_besides_those_of_the_tokens_have_sums_too() -> None:
    own = Tally([(0, 1)], layers=1, page_size=2)
    assert not own.misfit(PageSums(page_size=2, data=pack([[1], [2], [5]])), 3, 3), "one of them is state"
    assert own.misfit(PageSums(page_size=2, data=pack([[1], [2]])), 3, 3)


def test_many_layers_share_few_sums_and_are_named_by_range() -> None:
    assert [(layers_per_sum(n), groups_of(n)) for n in (1, 8, 9, 30, 61)] == [
        (1, 1), (1, 8), (2, 5), (4, 8), (8, 8)
    ]  # fmt: skip
    tally = Tally([(0, 1)], layers=30, page_size=16)
    tally.add(0, 0, pack([[0] * 8] * 20))
    rows = [[0, 1, 1, 0, 0, 0, 0, 1]] * 20
    words = tally.differs(PageSums(page_size=16, data=pack(rows)))
    assert words.startswith("page 0 (tokens 0..15), layers 4..11, 28..29; page 1 ")
    assert words.endswith("and 12 more pages")
