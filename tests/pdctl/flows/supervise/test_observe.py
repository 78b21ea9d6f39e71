"""Looks at a fleet of real sockets that answer what real engines answered."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from pdctl.adapters.picture import Reach, Sample
from pdctl.errors import UnreachableError
from pdctl.facts.missing import Missing
from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.party import Party
from pdctl.flows.supervise import observe
from pdctl.flows.supervise.observe import Observer
from pdctl.supervisor.observation import LISTED, Observation
from tests.bench.procs import free_ports
from tests.pdctl.supervisor.sim import CELL, Sim, fleet_file, somewhere

T = TypeVar("T")
ENGINES = 2 * CELL


@pytest.fixture(scope="module")
def sim() -> Iterator[Sim]:
    with somewhere(ENGINES) as sim:
        yield sim


@pytest.fixture
def ctx(tmp_path: Path, sim: Sim) -> Iterator[Context]:
    with Context(load_fleet(str(fleet_file(tmp_path, ENGINES, sim.port)))) as ctx:
        yield ctx


def observed(ctx: Context, act: Callable[[Observer], Awaitable[T]], deadline: float = observe.DEADLINE) -> T:
    async def inside() -> T:
        async with Observer(ctx, deadline=deadline) as observer:
            return await act(observer)

    return asyncio.run(inside())


async def until(observer: Observer, fits: Callable[[Observation], bool]) -> Observation:
    end = time.monotonic() + 60
    while not fits(look := await observer.look()):
        assert time.monotonic() < end, look
        await asyncio.sleep(0.05)
    return look


def _whole(look: Observation) -> bool:
    """On a busy machine a probe may be late."""
    return all(e.answered for e in look.engines) and look.router is not None and look.router.answered


def test_a_look_has_every_engine_and_the_ledger_and_the_next_sees_what_moved(ctx: Context) -> None:
    async def act(observer: Observer) -> tuple[Observation, Observation]:
        first = await until(observer, _whole)
        moved = first.engines[0].tokens or 0
        return first, await until(observer, lambda look: (look.engines[0].tokens or 0) > moved)

    first, second = observed(ctx, act)
    assert [e.name for e in first.engines] == [e.name for e in ctx.fleet.engines()]
    assert all(e.answered and e.ready for e in first.engines)
    assert len({e.incarnation for e in first.engines}) == ENGINES and set(first.cells()) == {"c0", "c1"}
    decode = first.engine("decode-1-7")
    assert decode is not None and decode.queues["preallocated"].depth == 2 and decode.waiting == 2
    assert first.router is not None and (first.router.size, len(first.router.requests)) == (500, LISTED)
    assert first.router.oldest == pytest.approx(4.99)
    assert second.number > first.number and second.monotonic > first.monotonic
    assert not first.nobody_answers


def test_the_silent_the_refusing_and_the_well_are_told_apart(ctx: Context, sim: Sim, tmp_path: Path) -> None:
    (closed,) = free_ports(1)
    path = tmp_path / "fleet.toml"
    path.write_text(path.read_text().replace(f"port = {sim.port + 3}\n", f"port = {closed}\n", 1))
    sim.silent = {"decode-1-7"}
    try:
        look = observed(Context(load_fleet(str(path))), lambda observer: observer.look())
    finally:
        sim.silent = set()
    states = {e.name: e.reach for e in look.engines}
    assert states.pop("decode-1-7") is Reach.TIMED_OUT and states.pop("decode-0-3") is Reach.REFUSED
    # On a busy machine a well one may be late too, and is then never said to have refused.
    assert set(states.values()) <= {Reach.OK, Reach.TIMED_OUT} and Reach.OK in states.values()
    refused = look.engine("decode-0-3")
    assert refused is not None and refused.detail == "nothing listens on the port" and not refused.queues


def test_when_nothing_answers_the_observer_says_so(ctx: Context, sim: Sim) -> None:
    """Silence alone: a port that refuses is on a machine that can be reached."""
    sim.silent = {"router", *(e.name for e in ctx.fleet.engines())}
    try:
        look = observed(ctx, lambda observer: observer.look(), 0.2)
        sim.silent.remove("router")
        heard = observed(
            ctx,
            lambda observer: until(observer, lambda look: look.router is not None and look.router.answered),
            1.0,
        )
    finally:
        sim.silent = set()
    assert look.nobody_answers and not heard.nobody_answers


def test_hosts_are_asked_in_the_background_and_a_failure_keeps_what_was_known(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Context.units

    async def act(observer: Observer) -> None:
        first = await observer.look()
        assert first.hosts == ()
        look = await until(observer, lambda look: len(look.hosts) == 2)
        host = look.host("h1")
        assert host is not None and host.reachable and host.local and host.detail == ""

        def lost(ctx: Context, name: str) -> object:
            if name == "h1":
                raise UnreachableError("gone", "h1 is gone.")
            return real(ctx, name)

        monkeypatch.setattr(Context, "units", lost)
        observer._hosts_every = 0.0
        look = await until(observer, lambda look: not all(h.reachable for h in look.hosts))
        host = look.host("h1")
        assert host is not None and host.detail == "h1 is gone." and look.host("h0") is not None

    observed(ctx, act)


def test_a_host_that_hangs_delays_no_look_and_is_not_asked_twice(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    release = threading.Event()

    def hang(ctx: Context, name: str) -> object:
        asked.append(name)
        release.wait(60)
        raise UnreachableError("gone", "late")

    monkeypatch.setattr(Context, "units", hang)
    monkeypatch.setattr(observe, "HOST_DEADLINE", 0.1)

    async def act(observer: Observer) -> None:
        observer._hosts_every = 0.0
        look = await until(observer, lambda look: len(look.hosts) == 2)
        assert all(not h.reachable and "did not answer within 0.1 s" in h.detail for h in look.hosts)
        for _ in range(3):
            await observer.look()
        assert sorted(asked) == ["h0", "h1"]
        release.set()
        await until(observer, lambda look: len(asked) > 2)

    observed(ctx, act)


def test_the_silent_wait_in_a_lane_of_their_own(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take no place from those that answer: here there is but one."""
    monkeypatch.setattr(observe, "QUICK", 1)
    real, silent, asked = Party.sample, "prefill-0-0", asyncio.Event()
    answered: set[str] = set()

    async def sample(party: Party, client: httpx.AsyncClient, deadline: float) -> Sample[Any]:
        name = party.unit.name
        if name != silent:
            answered.add(name)
            if len(answered) == ENGINES:  # the others, and the router
                asked.set()
            return await real(party, client, deadline)
        if asked.is_set():
            asked.clear()
            answered.clear()
            await asked.wait()
        return Sample(Reach.TIMED_OUT, Missing("silent"), "silent")

    monkeypatch.setattr(Party, "sample", sample)

    async def act(observer: Observer) -> None:
        first = await observer.look()  # nobody is known to be silent yet
        assert first.engines[0].reach is Reach.TIMED_OUT
        asked.set()
        second = await asyncio.wait_for(observer.look(), 60)
        assert second.engines[0].reach is Reach.TIMED_OUT and len(answered) == ENGINES

    observed(ctx, act)


def test_those_that_fall_silent_do_not_wait_for_one_another(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is but one place among the quick, and each silent one gives it up long before its deadline."""
    monkeypatch.setattr(observe, "QUICK", 1)
    monkeypatch.setattr(observe, "HELD", 0.01)
    asked, all_asked = 0, asyncio.Event()

    async def sample(party: Party, client: httpx.AsyncClient, deadline: float) -> Sample[Any]:
        nonlocal asked
        asked += 1
        if asked == ENGINES + 1:  # with the router
            all_asked.set()
        await all_asked.wait()
        return Sample(Reach.TIMED_OUT, Missing("silent"), "silent")

    monkeypatch.setattr(Party, "sample", sample)
    look = observed(ctx, lambda observer: asyncio.wait_for(observer.look(), 60))
    assert look.nobody_answers and asked == ENGINES + 1


def test_an_answer_that_nobody_foresaw_is_that_engines_alone(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Party.sample

    async def sample(party: Party, client: httpx.AsyncClient, deadline: float) -> Sample[Any]:
        if party.unit.name == "decode-0-2":
            raise ValueError("a queue called None")
        return await real(party, client, deadline)

    monkeypatch.setattr(Party, "sample", sample)
    look = observed(ctx, lambda observer: observer.look())
    odd = look.engine("decode-0-2")
    assert odd is not None and odd.reach is Reach.BAD_ANSWER and "a queue called None" in odd.detail
    assert len([e for e in look.engines if e.reach is Reach.BAD_ANSWER]) == 1
