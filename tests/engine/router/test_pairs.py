"""Which pair serves a request: inside a cell, ready, uncordoned, least loaded, in turn."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import RequestError
from engine.router.pairs import Engine, Pairs
from tests.engine.router.stubs import BEARER, rig, until


def engine(name: str, cell: str = "a", **fields: object) -> Engine:
    role = "prefill" if name[0] == "p" else "decode"
    return Engine(name, role, cell, f"http://{name}:1", ready=True, **fields)  # type: ignore[arg-type]


def picked(pairs: Pairs) -> tuple[str, str] | None:
    pair = pairs.pick()
    return None if pair is None else (pair.prefill.instance, pair.decode.instance)


def test_a_pair_never_crosses_cells() -> None:
    assert picked(Pairs([engine("p0", "a"), engine("d0", "b")])) is None
    assert picked(Pairs([engine("p0", "a"), engine("d0", "b"), engine("p1", "b")])) == ("p1", "d0")


def test_the_least_loaded_of_each_side_and_cell() -> None:
    engines = [engine("p0", active=3), engine("p1", active=1), engine("d0", active=0), engine("d1", active=2)]
    assert picked(Pairs(engines)) == ("p1", "d0")
    assert picked(Pairs([*engines, engine("p8", "b"), engine("d8", "b")])) == ("p8", "d8")


def test_equals_take_turns() -> None:
    pairs = Pairs(
        [engine("p0"), engine("p1"), engine("d0"), engine("d1"), engine("p2", "b"), engine("d2", "b")]
    )
    counts = Counter(picked(pairs) for _ in range(60))
    assert sum(counts.values()) == 60 and counts[("p2", "d2")] in range(15, 35)
    edges = [counts[(p, d)] for p in ("p0", "p1") for d in ("d0", "d1")]
    assert min(edges) == max(edges) == 10, "an edge that is not used is not known to work"


def test_cordoned_and_unready_engines_are_passed_over() -> None:
    pairs = Pairs([engine("p0"), engine("d0"), engine("d1")])
    pairs.cordon("d0", True)
    assert picked(pairs) == ("p0", "d1")
    pairs.engines["d1"].ready = False
    assert picked(pairs) is None and pairs.missing() == ["cell a has no usable decode"]
    pairs.cordon("d0", False)
    assert picked(pairs) == ("p0", "d0") and pairs.missing() == []
    with pytest.raises(RequestError) as e:
        pairs.cordon("nobody", True)
    assert e.value.status == 404 and "d0" in e.value.hint


engines_of = st.lists(
    st.tuples(st.sampled_from("pd"), st.sampled_from("abc"), st.booleans(), st.booleans(), st.integers(0, 5)),
    max_size=10,
)


@given(engines_of)
def test_a_pick_is_usable_of_one_cell_and_minimal(rows: list[tuple[str, str, bool, bool, int]]) -> None:
    engines = [engine(f"{r}{i}", cell, cordoned=c, active=n) for i, (r, cell, _, c, n) in enumerate(rows)]
    for e, row in zip(engines, rows, strict=True):
        e.ready = row[2]
    sums = [
        p.active + d.active
        for p in engines
        for d in engines
        if (p.role, d.role) == ("prefill", "decode") and p.cell == d.cell and p.usable and d.usable
    ]
    pairs = Pairs(engines)
    assert bool(pairs.missing()) == (not sums)
    pair = pairs.pick()
    if pair is None:
        assert not sums
    else:
        assert pair.prefill.cell == pair.decode.cell and pair.prefill.usable and pair.decode.usable
        assert pair.prefill.active + pair.decode.active == min(sums)


def test_load_spreads_over_real_engines_and_a_cordon_keeps_it_away() -> None:
    async def test() -> None:
        async with rig({"a": ("p0", "d0", "d1"), "b": ("p1", "d2")}) as r:
            for stub in r.stubs.values():
                stub.pause_after = 0
            asks = [asyncio.create_task(r.post()) for _ in range(12)]
            await until(lambda: sum(s.active for s in r.stubs.values()) == 24)
            assert r["p0"].active == r["d0"].active + r["d1"].active and r["p1"].active == r["d2"].active
            assert abs(r["d0"].active - r["d1"].active) <= 1
            state = {e["instance"]: e["active"] for e in (await r.http.get("/v1/state")).json()["engines"]}
            assert state == {n: s.active for n, s in r.stubs.items()}
            for stub in r.stubs.values():
                stub.gate.set()
            await asyncio.gather(*asks)
            assert (await r.admin("cordon", engine="p1", cordoned=True))["cordoned"] is True
            before = len(r["d2"].seen)
            await asyncio.gather(*(r.post() for _ in range(8)))
            assert len(r["d2"].seen) == before
            unknown = await r.http.post(
                "/admin/cordon", json={"engine": "x", "cordoned": True}, headers=BEARER
            )
            assert unknown.status_code == 404

    asyncio.run(test())
