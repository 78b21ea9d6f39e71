"""See one watchdog fire: a short value, one stalled transfer, healthy neighbours, everything checked.

The caller has written the recovery record and restores; nothing here is put back by this module.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx

from pdctl.errors import DeadlineError
from pdctl.fleet.chain import INFLIGHT, TRANSFER
from pdctl.fleet.model import Engine
from pdctl.fleet.place import place
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.drill.points import arm
from pdctl.flows.load.client import ask
from pdctl.flows.recovery.timeouts import set_live
from pdctl.flows.waiting import until

FAULT = "stall-transfer"
CODE = "kv_transfer_timeout"
NEIGHBOURS = 4
# Deadlines are served by a heap, not by a poll; this is what a busy host may add.
SLACK = 1.0


@dataclass(frozen=True)
class Check:
    """`ok` is None for what cannot be shown there; `detail` says why."""

    name: str
    ok: bool | None
    detail: str


@dataclass(frozen=True)
class Proof:
    """`fired_after` is the victim's dwell in the prefill's own words, None when nothing fired.

    `decode` is "" where none took part; `watchdog` is the variable that sets the one that was watched. `why`
    says of a check that failed what it comes of and what to do, where that is known.
    """

    prefill: str
    decode: str
    test_value: float
    fired_after: float | None
    victim: str
    checks: tuple[Check, ...]
    watchdog: str = INFLIGHT
    why: str = ""

    @property
    def ok(self) -> bool:
        return all(check.ok is not False for check in self.checks)

    @property
    def failed(self) -> list[str]:
        """Names of the checks that were not met."""
        return [check.name for check in self.checks if check.ok is False]


def fired(state: dict[str, Any]) -> int:
    return int(state.get("counters", {}).get("deadlines_fired", {}).get("inflight", 0))


def _busy(ctx: Context, engine: Engine) -> str:
    """What an idle engine would not have: requests, pages in quarantine."""
    state = admin.state(ctx, engine.url)
    if not state:
        return f"{engine.name} does not answer"
    requests, quarantined = len(state["requests"]), int(state["pages"]["quarantined"])
    busy = requests or quarantined
    return f"{engine.name} has {requests} requests, {quarantined} pages quarantined" if busy else ""


def _short(ctx: Context, engine: Engine, free: int) -> str:
    """Pages that are not back to the baseline `free`."""
    pages = admin.state(ctx, engine.url).get("pages", {})
    now = int(pages.get("free", 0))
    return "" if now >= free else f"{engine.name} has {now} pages free of {free} before the drill"


def _hits(state: dict[str, Any]) -> int:
    faults = state.get("faults", {})
    spent = int(faults.get("hits", {}).get(FAULT, 0))
    return spent or sum(f["hits"] for f in faults.get("armed", []) if f["name"] == FAULT)


async def _legs(ctx: Context, prefill: Engine, decode: Engine, id: str, deadline: float) -> tuple[str, str]:
    """The victim over this very edge; the error codes of the prefill and of the decode leg."""
    body = {
        "model": ctx.fleet.model.name,
        "prompt": "This request is a drill: its transfer will be stalled on purpose.",
        "max_tokens": 8,
        "temperature": 0,
        "bootstrap_host": prefill.address,
        "bootstrap_port": prefill.bootstrap_port,
        "bootstrap_room": secrets.randbits(62) or 1,
    }

    async def leg(client: httpx.AsyncClient, engine: Engine) -> str:
        try:
            r = await client.post(f"{engine.url}/v1/completions", json=body, headers={"X-Request-ID": id})
            error = r.json().get("error") or {}
        except (httpx.HTTPError, ValueError, AttributeError) as fault:
            return type(fault).__name__
        return str(error.get("code") or f"http_{r.status_code}")

    async with ctx.async_client(deadline) as client:
        one, other = await asyncio.gather(leg(client, prefill), leg(client, decode))
    return one, other


async def _stalled(ctx: Context, prefill: Engine, before: int, deadline: float) -> bool:
    """Wait until the fault has taken its room, so that no neighbour is taken instead."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        if _hits(await asyncio.to_thread(admin.state, ctx, prefill.url)) > before:
            return True
        await asyncio.sleep(0.1)
    return False


@dataclass(frozen=True)
class _Scene:
    """`codes` of the victim's legs, `told`: seconds from the stall to the last of them; `others` are
    (text, code) of its neighbours.
    """

    codes: tuple[str, str]
    told: float
    others: list[tuple[str, str]]
    stalled: bool


async def _scene(ctx: Context, prefill: Engine, decode: Engine, id: str, value: float, before: int) -> _Scene:
    """Victim first, neighbours once it is stalled."""
    url, model = ctx.fleet.router.url, ctx.fleet.model.name
    victim = asyncio.create_task(_legs(ctx, prefill, decode, id, value + 30.0))
    stalled = await _stalled(ctx, prefill, before, 10.0)
    began = time.monotonic()

    async def told() -> tuple[tuple[str, str], float]:
        return await victim, time.monotonic() - began

    async with ctx.async_client() as client:
        prompts = [f"Neighbour {n}: count from one to five." for n in range(NEIGHBOURS)]
        asked = asyncio.gather(*(ask(client, url, model, p, 8, 60.0) for p in prompts))
        (codes, seconds), others = await asyncio.gather(told(), asked)
    return _Scene(codes, seconds, list(others), stalled)


def prove(ctx: Context, prefill: Engine, decode: Engine, value: float) -> Proof:
    """Set `value`, stall one transfer of the edge and check everything that should follow.

    DeadlineError when the pair is not idle enough to take a baseline.
    """
    pair = (prefill, decode)
    for engine in pair:
        until(partial(_busy, ctx, engine), 30.0)
    base = admin.get(ctx, prefill.url, "/v1/state")
    free = {e.name: int(admin.get(ctx, e.url, "/v1/state")["pages"]["free"]) for e in pair}
    set_live(ctx, prefill.name, {"inflight": value})
    arm(ctx, prefill, FAULT, count=1)
    id = f"drill-{secrets.token_hex(6)}"
    ctx.say(f"{prefill.name} -> {decode.name}: watchdog at {value:g} s, one transfer stalled ({id})")
    scene = asyncio.run(_scene(ctx, prefill, decode, id, value, _hits(base)))
    checks = [Check("one transfer was stalled", scene.stalled, f"{FAULT} count 1")]
    checks += _client_checks(scene, value)
    began = time.monotonic()
    after = _settled(ctx, pair, free)
    took = time.monotonic() - began
    state = admin.get(ctx, prefill.url, "/v1/state")
    dwell = _dwell(base, state)
    checks += [
        Check(
            "deadline counter moved by one",
            fired(state) - fired(base) == 1,
            f"{fired(base)} -> {fired(state)}",
        ),
        Check(
            "pages are back", not after, after or f"as many free as before: {_said(free)}, after {took:.1f} s"
        ),
        _in_time(dwell, value),
        _logged(ctx, prefill, id),
    ]
    why = why_not(ctx, prefill, state, checks)
    return Proof(prefill.name, decode.name, value, dwell, id, tuple(checks), why=why)


def why_not(ctx: Context, prefill: Engine, state: dict[str, Any], checks: Sequence[Check]) -> str:
    """What a prefill in legacy-bootstrap mode leaves out, and how to leave the mode; "" where all is well, or
    for another reason."""
    if all(check.ok for check in checks) or not state.get("legacy_bootstrap"):
        return ""
    at = place(ctx.fleet, "cells", prefill.cell, "engines", prefill.name, "legacy_bootstrap")
    return (
        f"{prefill.name} runs in legacy-bootstrap mode and tells decode of no failure, so that clients wait "
        f"until decode's own {TRANSFER}; take legacy_bootstrap out at {at}, `pdctl deploy`, then verify again"
    )


def _settled(ctx: Context, pair: tuple[Engine, Engine], free: dict[str, int]) -> str:
    """What is still held after the drill, "" when every page of both sides came back."""
    try:
        for engine in pair:
            until(partial(_short, ctx, engine, free[engine.name]), 15.0)
    except DeadlineError as error:
        return error.message
    return ""


def _said(free: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in free.items())


def _client_checks(scene: _Scene, value: float) -> list[Check]:
    bad = [code for _, code in scene.others if code]
    empty = sum(1 for text, code in scene.others if not code and not text.strip())
    said = f"prefill leg {scene.codes[0]}, decode leg {scene.codes[1]}"
    return [
        Check("typed error at the client", scene.codes == (CODE, CODE), said),
        # The stall is seen a moment after it has begun.
        Check(
            "client told in time",
            scene.told <= value + SLACK,
            f"{scene.told:.2f} s after the stall was seen, due within {value + SLACK:g} s",
        ),
        Check(
            "neighbours untouched",
            not bad and not empty,
            f"{len(scene.others) - len(bad) - empty} of {len(scene.others)} answered"
            + (f", failed with {', '.join(bad)}" if bad else ""),
        ),
    ]


def _dwell(base: dict[str, Any], state: dict[str, Any]) -> float | None:
    """The failed dwell that was not there before."""
    old = {tuple(row) for row in base["dwell"]["recent"]}
    new = [row for row in state["dwell"]["recent"] if tuple(row) not in old and row[2] == "failed"]
    return float(new[-1][1]) if new else None


def _in_time(dwell: float | None, value: float) -> Check:
    ok = dwell is not None and value - 0.05 <= dwell <= value + SLACK
    said = "nothing fired"
    if dwell is not None:
        late = max(0.0, dwell - value)
        said = f"after {dwell:.2f} s, due at {value:g} s: {late:.2f} s late, {SLACK:g} s are allowed"
    return Check("fired in time", ok, said)


def _logged(ctx: Context, prefill: Engine, id: str) -> Check:
    lines = ctx.units_of(prefill).logs(prefill.name, 2000)
    found = [line for line in lines if CODE in line and id in line]
    return Check("one line in the log", len(found) == 1, found[0] if found else "no line names it")
