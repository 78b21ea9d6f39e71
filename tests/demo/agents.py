"""A few coding-agent-like clients: each runs rounds of a growing conversation and says how they went."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import httpx


@dataclass
class Round:
    agent: int
    number: int
    seconds: float
    code: str

    @property
    def ok(self) -> bool:
        return self.code == "ok"


@dataclass
class Agents:
    """`count` agents in threads; `rounds` each, or until `stop` when it is 0."""

    url: str
    model: str
    count: int = 4
    rounds: int = 0
    tokens: int = 12
    timeout: float = 600.0
    done: list[Round] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> Agents:
        for agent in range(self.count):
            thread = threading.Thread(target=self._agent, args=(agent,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def stop(self) -> Agents:
        """Let running rounds end, and wait for them."""
        self._stop.set()
        return self.join()

    def join(self) -> Agents:
        for thread in self._threads:
            thread.join(self.timeout + 10)
        return self

    def failed(self) -> list[Round]:
        return [r for r in self.done if not r.ok]

    def summary(self) -> str:
        times = sorted(r.seconds for r in self.done if r.ok)
        middle = f", median {times[len(times) // 2]:.2f} s a round" if times else ""
        codes = sorted({r.code for r in self.failed()})
        bad = f", {len(self.failed())} failed ({', '.join(codes)})" if codes else ", none failed"
        return f"{self.count} agents, {len(self.done)} rounds{bad}{middle}"

    def _agent(self, agent: int) -> None:
        messages = [{"role": "user", "content": f"Agent {agent}: name a sorting algorithm."}]
        number = 0
        while not self._stop.is_set() and (self.rounds == 0 or number < self.rounds):
            number += 1
            began = time.monotonic()
            code, text = self._ask(messages)
            self.done.append(Round(agent, number, time.monotonic() - began, code))
            messages += [
                {"role": "assistant", "content": text or "…"},
                {"role": "user", "content": f"Round {number}: go on with one more."},
            ]
            messages = messages[-9:]

    def _ask(self, messages: list[dict[str, str]]) -> tuple[str, str]:
        body = {"model": self.model, "messages": messages, "max_tokens": self.tokens, "temperature": 0}
        try:
            answer = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=self.timeout)
        except httpx.HTTPError as error:
            return type(error).__name__, ""
        if answer.status_code != 200:
            return str(answer.json()["error"]["code"]), ""
        return "ok", str(answer.json()["choices"][0]["message"]["content"])
