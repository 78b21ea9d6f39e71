"""What an engine says while a peer is missing, and what it answers once its ranks are lost."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from engine import args as arguments
from engine.core.errors import RequestError
from engine.core.framing import Channel
from engine.core.settings import Settings
from engine.core.types import Request, Sampling
from engine.group.client import GroupClient
from engine.group.engine import Engine
from engine.group.parent import Rank

DECODE = ["--instance", "d", "--role", "decode", "--model", "m", "--port", "8000"]


def not_ready(peers: list[str], rows: list[dict[str, Any]]) -> list[str]:
    flags = [word for peer in peers for word in ("--peer", peer)]
    parsed = arguments.parser().parse_args([*DECODE, *flags])
    config = arguments.config_from(parsed, SimpleNamespace(__str__=lambda: "m"), "", False)  # type: ignore[arg-type]
    snapshot = {"linked": 0, "peers": rows}
    client = SimpleNamespace(up=object(), snapshot=snapshot, snapshot_at=time.monotonic())
    return Engine(config, Settings.from_env({}), client, "m").not_ready()  # type: ignore[arg-type]


def row(address: str, instance: str | None = None) -> dict[str, Any]:
    return {"instance": instance, "address": address, "error": "The connection was refused."}


def test_a_prefill_that_never_answered_is_called_by_its_name() -> None:
    said = not_ready(["prefill-0=h:8102", "h:8103"], [row("h:8102"), row("h:8103"), row("h:8104", "p4")])
    refused = "The connection was refused."
    assert said == [f"no prefill is linked (prefill-0: {refused}; h:8103: {refused}; p4: {refused})"]


def test_a_lost_group_answers_at_once_and_in_one_sentence() -> None:
    """A request that runs, one that comes, an abort that waits for the leader, and one that would."""

    async def go() -> list[object]:
        ours, theirs = socket.socketpair()
        process = subprocess.Popen([sys.executable, "-c", ""])
        client = GroupClient([Rank(0, process, Channel(ours))], asyncio.get_running_loop())
        request = Request(id="r", prompt=[1], sampling=Sampling(max_tokens=4))
        running = asyncio.ensure_future(anext(aiter(client.submit(request))))
        aborting = asyncio.ensure_future(client.abort("r", "client"))
        draining = asyncio.ensure_future(client.admin("drain", {}))
        await asyncio.sleep(0)
        client.fail_all("engine_failed", "The engine ended: rank 1 died.")
        out = await running
        found: list[object] = [(out.code, out.message), await aborting, await client.abort("r", "client")]
        for late in (draining, client.admin("resume", {}), anext(aiter(client.submit(request)))):
            with pytest.raises(RequestError, match=r"rank 1 died\.") as caught:
                await late
            found.append((caught.value.code, caught.value.status))
        ours.close()
        theirs.close()
        process.wait(10)
        return found

    async def bounded() -> list[object]:
        async with asyncio.timeout(2.0):
            return await go()

    failed = ("engine_failed", 500)
    told = ("engine_failed", "The engine ended: rank 1 died.")
    assert asyncio.run(bounded()) == [told, False, False, failed, failed, failed]
