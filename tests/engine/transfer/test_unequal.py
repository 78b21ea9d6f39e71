"""Two sides that differ in tensor-parallel size or page size, and caches that every rank holds whole: over
real agents every byte goes to its place, once, and nothing else is touched."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import msgspec
import pytest
import torch

from engine.core.types import FirstToken, Shape
from tests.engine.transfer.harness import SHAPE, Engine, RealAgents, heads_of, linked_pair, until

Make = Callable[..., Engine]
LATENT = msgspec.structs.replace(SHAPE, kv_heads=1, head_dim=12, replicated=True)
PAGES = 16


def shaped(**fields: object) -> Shape:
    return msgspec.structs.replace(SHAPE, **fields)


HALF = shaped(itemsize=2)


def prompt(tokens: int, shape: Shape) -> torch.Tensor:
    """KV of a prompt, [token, head, layer, k/v, dim]."""
    kv = torch.randn(tokens, shape.kv_heads, shape.layers, 2, shape.head_dim)
    return kv.to({4: torch.float32, 2: torch.bfloat16}[shape.itemsize])


def pools(engine: Engine) -> list[torch.Tensor]:
    """Each rank's pool as [page, slot, head, layer, k/v, dim], a view."""
    assert isinstance(engine.ranks, RealAgents)
    return [pool.permute(0, 4, 1, 2, 3, 5) for pool in engine.ranks.pools]


def store(engine: Engine, kv: torch.Tensor, pages: list[int], shape: Shape) -> None:
    """Put a prompt's KV into every rank's pages."""
    for rank, pool in enumerate(pools(engine)):
        first, last = heads_of(shape, engine.ranks.tp, rank)
        for token in range(len(kv)):
            pool[pages[token // shape.page_size], token % shape.page_size] = kv[token, first:last]


def expect(engine: Engine, kv: torch.Tensor, pages: list[int], shape: Shape) -> None:
    """Every rank has the prompt's KV in these pages and zeros in all others but the scratch page."""
    for rank, pool in enumerate(pools(engine)):
        first, last = heads_of(shape, engine.ranks.tp, rank)
        wanted = torch.zeros_like(pool)
        for token in range(len(kv)):
            wanted[pages[token // shape.page_size], token % shape.page_size] = kv[token, first:last]
        assert torch.equal(pool[:-1], wanted[:-1]), f"rank {rank}"


def move(prefill: Engine, decode: Engine, tokens: int, src: list[int], dst: list[int], room: int = 5) -> None:
    prefill.transfer.open(room, "p")
    decode.transfer.request(room, "d", prefill.address)
    decode.transfer.grant(room, dst, tokens)
    prefill.transfer.computed(room, tokens, src, FirstToken(token=7))
    until(lambda: "ready" in decode.sink.of(room), "the room is ready")
    until(lambda: prefill.sink.of(room) == ["done", "quiet"], "prefill is done")
    assert decode.sink.of(room) == ["done", "quiet", "ready"]


def moved(engine: Engine) -> int:
    return int(str(engine.transfer.counters_document()["transfer_bytes"]))


class Cell:
    """Prefills of 1 to 4 ranks, one of them without a head, each linked with decodes of 1 to 3."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.rooms = shape, itertools.count(1)
        made = {"real": True, "shape": shape, "pages": PAGES}
        self.prefills = {tp: Engine("prefill", f"prefill-{tp}", tp=tp, **made) for tp in (1, 2, 3, 4)}
        peers = [prefill.address for prefill in self.prefills.values()]
        self.decodes = {tp: Engine("decode", f"decode-{tp}", tp=tp, peers=peers, **made) for tp in (1, 2, 3)}

    def wait(self) -> Cell:
        for decode in self.decodes.values():
            until(lambda d=decode: len(d.transfer.linked()) == 4, "all prefills are linked", 60.0)
        for prefill in self.prefills.values():
            until(lambda p=prefill: len(p.transfer.linked()) == 3, "all decodes are linked", 60.0)
        return self

    def stop(self) -> None:
        for one in (*self.decodes.values(), *self.prefills.values()):
            one.stop()


@pytest.fixture(scope="module", params=[SHAPE, HALF, LATENT], ids=["fp32", "bf16", "replicated"])
def cell(request: pytest.FixtureRequest) -> Iterator[Cell]:
    made = Cell(request.param)
    try:
        yield made.wait()
    finally:
        made.stop()


@pytest.mark.parametrize("tp", itertools.product((1, 2, 3, 4), (1, 2, 3)), ids=str)
def test_any_two_tensor_parallel_sizes(cell: Cell, tp: tuple[int, int]) -> None:
    prefill, decode, shape = cell.prefills[tp[0]], cell.decodes[tp[1]], cell.shape
    for engine in (prefill, decode):
        for pool in pools(engine):
            pool.zero_()
    src, dst, before = [3, 0, 7, 9, 4], [14, 2, 1, 0, 9], moved(prefill)
    kv = prompt(10, shape)
    store(prefill, kv, src, shape)
    move(prefill, decode, 10, src, dst, room=next(cell.rooms))
    expect(decode, kv, dst, shape)
    copies = tp[1] if shape.replicated else 1
    assert moved(prefill) - before == copies * len(src) * shape.kv_heads * shape.head_bytes


# Tokens of a page on prefill and on decode, TP sizes, and tokens of a prompt that fills its last page on
# neither side, on one of them, or on both.
RATIOS = [
    (2, 4, (1, 1), 11, SHAPE),
    (4, 2, (1, 1), 9, SHAPE),
    (2, 6, (2, 1), 10, SHAPE),
    (6, 2, (3, 2), 13, SHAPE),
    (1, 3, (2, 3), 12, HALF),
    (4, 1, (1, 3), 10, HALF),
    (2, 4, (2, 3), 7, LATENT),
    (4, 2, (3, 2), 5, LATENT),
]


def sides(
    engine: Make, here: int, there: int, tp: tuple[int, int], base: Shape = SHAPE
) -> tuple[Engine, ...]:
    """A linked pair. Prefill's scratch page is not zero, so that a warm-up that goes astray shows."""
    p, d = (msgspec.structs.replace(base, page_size=size) for size in (here, there))
    prefill = engine("prefill", "prefill-0", real=True, shape=p, tp=tp[0], pages=PAGES)
    for pool in pools(prefill):
        pool[-1] = 1
    address = [prefill.address]
    decode = engine("decode", "decode-0", real=True, shape=d, tp=tp[1], pages=PAGES, peers=address)
    until(lambda: prefill.linked() and decode.linked(), "both sides linked")
    return prefill, decode


@pytest.mark.parametrize(("here", "there", "tp", "tokens", "base"), RATIOS)
def test_page_sizes_of_which_one_divides_the_other(
    engine: Make, here: int, there: int, tp: tuple[int, int], tokens: int, base: Shape
) -> None:
    prefill, decode = sides(engine, here, there, tp, base)
    src = [11, 3, 0, 7, 9, 4, 1, 2, 5, 6, 8, 10, 12][: -(-tokens // here)]
    dst = [14, 2, 1, 0, 9, 5, 3, 4, 6, 7, 8, 10, 11][: -(-tokens // there)]
    unit = min(here, there)
    written = -(-tokens // unit) * unit
    # Prefill's last page has more in it than the prompt; what is no part of a unit of it must not travel.
    kv = prompt(len(src) * here, base)
    store(prefill, kv, src, msgspec.structs.replace(base, page_size=here))
    move(prefill, decode, tokens, src, dst)
    expect(decode, kv[:written], dst, msgspec.structs.replace(base, page_size=there))
    each = base.head_bytes // base.page_size * base.kv_heads
    assert moved(prefill) == written * each * (tp[1] if base.replicated else 1)


@pytest.mark.parametrize(("here", "there", "arrived"), [(2, 4, 1), (4, 2, 4)])
def test_chunks_of_prefills_pages_count_in_decodes(engine: Make, here: int, there: int, arrived: int) -> None:
    """After `complete` source pages, decode is told of the pages that are whole, and no others."""
    prefill, decode = sides(engine, here, there, (2, 1))
    src, dst, tokens, room = [1, 2, 3, 4, 5, 6, 7, 8], [8, 7, 6, 5, 4, 3], 11, 9
    size = shaped(page_size=here)
    src, dst = src[: -(-tokens // here)], dst[: -(-tokens // there)]
    kv = prompt(12, SHAPE)
    store(prefill, kv, src, size)
    prefill.transfer.open(room, "p")
    decode.transfer.request(room, "d", prefill.address)
    decode.transfer.grant(room, dst, tokens)
    complete = {2: 3, 4: 2}[here]
    prefill.transfer.chunk(room, src[:complete], complete)
    until(lambda: decode.transfer.rooms()[room]["stage"] == "transferring", "the chunk arrived")
    assert decode.transfer.receiver is not None
    (incoming,) = decode.transfer.receiver._rooms.values()
    assert incoming.pages_done == arrived
    expect(decode, kv[: complete * here], dst, shaped(page_size=there))
    prefill.transfer.computed(room, tokens, src, FirstToken(token=11))
    until(lambda: ("ready", room, 11) in decode.sink.events, "the room is ready")
    expect(decode, kv, dst, shaped(page_size=there))


@pytest.mark.parametrize(("here", "there", "pages"), [(2, 4, 2), (4, 2, 4)])
def test_a_want_of_too_few_pages_fails_the_room(engine: Make, here: int, there: int, pages: int) -> None:
    prefill, decode = linked_pair(engine, p_shape=shaped(page_size=here), d_shape=shaped(page_size=there))
    prefill.transfer.open(5, "p")
    decode.transfer.request(5, "d", prefill.address)
    decode.transfer.grant(5, list(range(pages)), 10)
    prefill.transfer.computed(5, 10, list(range(-(-10 // here))), FirstToken(token=7))
    until(lambda: decode.sink.of(5) == ["kv_transfer_failed", "quiet"], "decode is told")
    assert prefill.sink.of(5) == ["kv_transfer_failed", "quiet"]


@pytest.mark.parametrize(
    ("field", "shape", "text"),
    [
        ("page_size", shaped(page_size=3), "neither is a multiple"),
        ("layout", shaped(replicated=True), "replicated-1"),
    ],
)
def test_sides_that_cannot_be_mapped_are_refused_by_name(
    engine: Make, field: str, shape: Shape, text: str
) -> None:
    prefill = engine("prefill", "prefill-0")
    decode = engine("decode", "decode-0", peers=[prefill.address], shape=shape)
    until(lambda: f"{field} of decode-0 is" in str(decode.transfer.peers_document()), "the field is named")
    assert text in str(decode.transfer.peers_document())
    decode.transfer.request(4, "r", prefill.address)
    until(lambda: decode.sink.of(4) == ["peer_incompatible", "quiet"], "a room fails at once")
