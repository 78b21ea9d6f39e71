"""Every wait of the router ends: total, idle, hold, no pair; and refused connections are tried again."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.engine.router.stubs import BEARER, rig, until


@pytest.mark.parametrize("stream", [False, True])
def test_the_total_deadline_ends_both_legs_by_name(stream: bool) -> None:
    async def test() -> None:
        async with rig(TOTAL="0.3") as r:
            r["p0"].pause_after = r["d0"].pause_after = 0
            answer = await r.post(stream=stream)
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "router_total_timeout")
            assert "PD_ROUTER_TOTAL_TIMEOUT" in answer.json()["error"]["message"]
            await until(lambda: r["d0"].dropped == r["p0"].dropped == 1)
            state = (await r.http.get("/v1/state")).json()
            assert state["counters"]["requests_failed"] == {"router_total_timeout": 1}

    asyncio.run(test())


def test_the_idle_deadline_ends_a_stream_that_went_silent() -> None:
    async def test() -> None:
        async with rig(IDLE="0.4") as r:
            r["d0"].pause_after = 2
            text = (await r.post(stream=True)).text
            assert "t1" in text and "t2" not in text and '"code":"router_idle_timeout"' in text
            assert await r.ended() == [("failed", "router_idle_timeout")]
            await until(lambda: r["d0"].dropped == 1)

    asyncio.run(test())


def test_progress_in_an_engines_state_is_a_sign_of_life() -> None:
    """A long answer that is not streamed sends nothing for minutes and is not idle."""

    async def test() -> None:
        async with rig(IDLE="1.5") as r:
            r["d0"].pause_after = 0
            asking = asyncio.create_task(r.post(id="long"))
            for tokens in range(6):
                r["d0"].requests = [{"id": "long", "stage": "running", "output_tokens": tokens}]
                await asyncio.sleep(0.5)
            assert not asking.done()
            answer = await asking  # no progress from here on
            assert answer.json()["error"]["code"] == "router_idle_timeout"

    asyncio.run(test())


def test_a_changed_timeout_applies_to_requests_under_way() -> None:
    async def test() -> None:
        async with rig() as r:
            r["p0"].pause_after = r["d0"].pause_after = 0
            asking = asyncio.create_task(r.post())
            await until(lambda: r["d0"].active)
            document = await r.admin("timeouts", router_total=0.1)
            assert document["router_total"] | {"changed_at": 0} == {
                "value": 0.1,
                "unit": "s",
                "env": "PD_ROUTER_TOTAL_TIMEOUT",
                "source": "admin",
                "side": "router",
                "live": True,
                "changed_at": 0,
            }
            assert (await asking).status_code == 504
            bad = await r.http.post("/admin/timeouts", json={"router_totl": 1}, headers=BEARER)
            assert bad.status_code == 400 and "router_total" in bad.json()["error"]["message"]

    asyncio.run(test())


def test_a_hold_keeps_requests_and_loses_none_under_load() -> None:
    async def test() -> None:
        async with rig({"a": ("p0", "p1", "d0", "d1")}) as r:
            answers: list[httpx.Response] = []
            running = True

            async def client(stream: bool) -> None:
                while running:
                    answers.append(await r.post(stream=stream))

            load = [asyncio.create_task(client(i % 2 == 0)) for i in range(8)]
            await until(lambda: len(answers) > 20)
            for _ in range(3):
                assert (await r.admin("hold"))["admission"] == "held"
                await until(lambda: r.router.ledger.held == 8)
                assert all(s.active == 0 for s in r.stubs.values())
                requests = (await r.http.get("/v1/requests")).json()["requests"]
                assert {q["stage"] for q in requests} == {"held"}
                before = len(answers)
                assert (await r.admin("resume"))["admission"] == "open"
                await until(lambda n=before: len(answers) > n + 20)
            running = False
            await asyncio.gather(*load)
            assert {a.status_code for a in answers} == {200}
            counters = (await r.http.get("/v1/state")).json()["counters"]
            assert counters["held_total"] == 24 and counters["requests_failed"] == {}

    asyncio.run(test())


def test_a_drain_waits_for_the_legs_and_ends_none() -> None:
    async def test() -> None:
        async with rig() as r:
            r["d0"].pause_after = 1
            asking = asyncio.create_task(r.post(stream=True))
            await until(lambda: r["d0"].active)
            early = await r.admin("drain", timeout=0)
            assert (early["admission"], early["drained"]) == ("held", False) and early["active"] > 0
            r["d0"].gate.set()
            done = await r.admin("drain", timeout=20)
            assert (done["admission"], done["drained"], done["active"]) == ("held", True, 0)
            assert (await asking).status_code == 200
            assert (await r.admin("resume"))["admission"] == "open"

    asyncio.run(test())


def test_a_request_held_too_long_is_told_so() -> None:
    async def test() -> None:
        async with rig(HOLD="0.2") as r:
            await r.admin("hold")
            answer = await r.post()
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "held_too_long")
            assert "PD_ROUTER_HOLD_TIMEOUT=0.2 s" in answer.text
            await r.admin("hold", timeout=60)
            asking = asyncio.create_task(r.post())
            await until(lambda: r.router.ledger.held)
            await asyncio.sleep(0.5)
            assert not asking.done() and (await r.http.get("/ready")).status_code == 200
            await r.admin("resume")
            assert (await asking).status_code == 200

    asyncio.run(test())


def test_the_total_deadline_of_a_held_request_is_a_hold_too_long() -> None:
    async def test() -> None:
        async with rig(TOTAL="0.2") as r:
            await r.admin("hold")
            assert (await r.post()).json()["error"]["code"] == "held_too_long"

    asyncio.run(test())


def test_a_client_that_leaves_while_held_is_gone_from_the_ledger() -> None:
    async def test() -> None:
        async with rig() as r:
            await r.admin("hold")
            asking = asyncio.create_task(r.post())
            await until(lambda: r.router.ledger.held)
            asking.cancel()
            assert await r.ended() == [("aborted", "client")]
            await r.admin("resume")
            assert r["p0"].seen == [] and not r.router.ledger.live

    asyncio.run(test())


def test_without_a_pair_requests_wait_and_then_fail_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with rig(PAIR="0.3") as r:
            r["d0"].ready = False
            await until(lambda: not r.engine("d0").ready)
            answer = await r.post()
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_pair")
            assert "within PD_ROUTER_PAIR_TIMEOUT=0.3 s: cell a has no usable decode" in answer.text
            assert (await r.http.get("/ready")).json()["ready"] is False
            (line,) = [text for text in caplog.messages if "ends with no_pair" in text]
            assert "PD_ROUTER_PAIR_TIMEOUT=0.3" in line

    asyncio.run(test())


def test_the_wait_for_a_pair_outlasts_an_engines_start_and_may_change_while_it_lasts() -> None:
    """A decode that restarts is away for some ten seconds, and more on a busy machine."""

    async def test() -> None:
        async with rig() as r:
            assert r.router.settings["router_pair"] >= 60
            r["d0"].ready = False
            await until(lambda: not r.engine("d0").ready)
            asking = asyncio.create_task(r.post())
            await until(lambda: r.router.ledger.live)
            await r.admin("timeouts", router_pair=0.1)
            assert (await asking).json()["error"]["code"] == "no_pair"

    asyncio.run(test())


def test_a_client_that_leaves_while_there_is_no_pair_is_gone_from_the_ledger() -> None:
    async def test() -> None:
        async with rig() as r:
            r["d0"].ready = False
            await until(lambda: not r.engine("d0").ready)
            asking = asyncio.create_task(r.post())
            await until(lambda: r.router.ledger.live)
            asking.cancel()
            assert await r.ended() == [("aborted", "client")]
            assert not r.router.ledger.live

    asyncio.run(test())


def test_a_request_waits_for_an_engine_that_comes_back() -> None:
    async def test() -> None:
        async with rig() as r:
            await r["d0"].end()
            answers = asyncio.gather(*(r.post(stream=i % 2 == 0) for i in range(6)))
            await until(lambda: not r.engine("d0").ready and len(r.router.ledger.live) == 6)
            await r["d0"].start()
            assert {a.status_code for a in await answers} == {200}
            assert r.engine("d0").incarnation == r["d0"].incarnation
            assert await r.ended(6) == [("done", None)] * 6

    asyncio.run(test())


def test_a_refused_leg_is_tried_once_on_another_pair() -> None:
    async def test() -> None:
        async with rig({"a": ("p0", "d0", "d1")}) as r:
            r.engine("d1").turn = 1  # d0 is next
            await r["d0"].end()
            r.router.health.mark(r.engine("d0"), None)
            answer = await r.post(id="again")
            assert answer.status_code == 200 and r["d1"].ids == ["again"]
            assert r.router.ledger.retries == 1 and not r.engine("d0").ready
            rooms = {s["bootstrap_room"] for s in r["p0"].seen}
            assert r["d1"].seen[0]["bootstrap_room"] in rooms

    asyncio.run(test())
