"""A storm of aborts over a pair of real engines and their router, and what it left behind."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.e2e.stack import Stack

HOWS = ("client", "router", "prefill-0", "decode-0", "nobody")
WORDS = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet"]


@dataclass
class Storm:
    """`ended` counts what clients saw, `stages` where requests were when they were aborted."""

    pair: Stack
    total: int
    at_once: int = 24
    ended: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    aborted: Counter[str] = field(default_factory=Counter)
    where: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        dice, gate = random.Random(11), asyncio.Semaphore(self.at_once)
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=httpx.Timeout(120.0), limits=limits, trust_env=False) as http:
            watch = asyncio.create_task(self._watch(http))
            plans = [
                (n, HOWS[n % len(HOWS)], dice.random() ** 2 * 4.0, dice.randint(3, 150), dice.randint(2, 24))
                for n in range(self.total)
            ]
            async with asyncio.TaskGroup() as group:
                for n, how, after, words, tokens in plans:
                    await gate.acquire()
                    begin = WORDS * dice.choice((0, 0, 3, 9))  # what several have in common
                    text = " ".join([*begin, *(dice.choice(WORDS) for _ in range(words))])
                    task = group.create_task(self._one(http, f"storm-{n}", how, after, text, tokens))
                    task.add_done_callback(lambda _: gate.release())
            watch.cancel()

    async def _watch(self, http: httpx.AsyncClient) -> None:
        """Where each request is, as the engines say."""
        while True:
            for name in ("prefill-0", "decode-0"):
                try:
                    state = (await http.get(f"{self.pair[name].url}/v1/state")).json()
                except httpx.HTTPError:
                    continue
                self.where |= {r["id"]: f"{name} {r['stage']}" for r in state["requests"]}
            await asyncio.sleep(0.1)

    async def _one(
        self, http: httpx.AsyncClient, id: str, how: str, after: float, text: str, tokens: int
    ) -> None:
        asked = asyncio.create_task(self._ask(http, id, text, tokens))
        if how != "nobody":
            await asyncio.wait({asked}, timeout=after)
            if not asked.done():
                self.stages[self.where.get(id, "not on an engine yet")] += 1
                if how == "client":
                    asked.cancel()
                else:
                    await self._abort(http, how, id)
        try:
            self.ended[await asked] += 1
        except asyncio.CancelledError:
            self.ended["left"] += 1

    async def _abort(self, http: httpx.AsyncClient, at: str, id: str) -> None:
        headers = {"Authorization": f"Bearer {self.pair.token}"}
        for _ in range(20):
            answer = await http.post(f"{self.pair[at].url}/admin/abort", json={"id": id}, headers=headers)
            if answer.status_code != 504:  # a leader in a long step on a busy machine is asked again
                break
        assert answer.status_code == 200, answer.text
        self.aborted[at] += answer.json()["aborted"]

    async def _ask(self, http: httpx.AsyncClient, id: str, text: str, tokens: int) -> str:
        """How a streamed request ended: "done", or its code."""
        params = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body = {"text": text, "stream": True, "sampling_params": params}
        url, last = f"{self.pair['router'].url}/generate", b""
        async with http.stream("POST", url, json=body, headers={"X-Request-ID": id}) as answer:
            async for line in answer.aiter_lines():
                last = line.encode() if line.strip() else last
        document: Any = json.loads(last.removeprefix(b"data: ")) if last not in (b"", b"data: [DONE]") else {}
        return str(document["error"]["code"]) if "error" in document else "done"


def counters(pair: Stack, name: str) -> dict[str, int]:
    """What an engine counts of its requests."""
    c = pair[name].state()["counters"]
    failed = c["requests_failed"]
    return {
        "received": c["requests_received"],
        "done": c["requests_done"],
        "aborted": c["requests_aborted"],
        "reused": c["prefix_tokens_hit"],
        "failed": sum(failed.values()) if isinstance(failed, dict) else failed,
    }
