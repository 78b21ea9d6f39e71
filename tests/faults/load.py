"""Steady greedy load with known right answers, and what became of every request."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import httpx

from tests.e2e.stack import HTTP

Fate = Literal["right", "wrong", "failed", "broken", "hung"]
HUNG = 45.0  # seconds; beyond every deadline of a bed

FOX = "The quick brown fox jumps over the lazy dog. " * 30
# Text and tokens of each agent: ordinary, prefill-heavy, decode-heavy. The last one is streamed.
ASKS: tuple[tuple[str, int], ...] = (
    ("The capital of France is", 12),
    (FOX, 4),
    ("Once upon a time there was a", 48),
)
# What the prefill-heavy agent asks in turn with its own ask, which the prefix cache knows. These it does not:
# they differ from the first token on, and are more pages together than an engine of a bed has.
FRESH: tuple[tuple[str, int], ...] = tuple((f"{n}. {FOX}", 4) for n in range(1, 17))


@dataclass(frozen=True)
class Shot:
    """One request: monotonic times, its fate, its error's code or what was wrong, the error's words."""

    began: float
    ended: float
    fate: Fate
    said: str = ""
    words: str = ""


def body(ask: tuple[str, int], stream: bool) -> dict[str, object]:
    prompt, tokens = ask
    return {
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": stream,
    }


def answer_of(url: str, ask: tuple[str, int]) -> str:
    """The whole text of one answer; AssertionError when there is none."""
    answer = HTTP.post(f"{url}/v1/completions", json=body(ask, False), timeout=120.0)
    assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
    return str(answer.json()["choices"][0]["text"])


def shoot(url: str, ask: tuple[str, int], right: str, stream: bool, hung: float = HUNG) -> Shot:
    """One request to its end, however it ends. `broken` is an end without a typed error."""
    began = time.monotonic()
    words = ""
    try:
        fate, said, words = _ask(url, ask, right, stream, began + hung)
    except (httpx.TimeoutException, TimeoutError):
        fate, said = "hung", f"no end after {hung:g} s"
    except (httpx.HTTPError, ValueError, KeyError) as error:
        fate, said = "broken", f"{type(error).__name__}: {error}"
    return Shot(began, time.monotonic(), fate, said, words)


def _ask(url: str, ask: tuple[str, int], right: str, stream: bool, deadline: float) -> tuple[Fate, str, str]:
    timeout = httpx.Timeout(deadline - time.monotonic(), connect=10.0)
    text, done = "", False
    with HTTP.stream("POST", f"{url}/v1/completions", json=body(ask, stream), timeout=timeout) as answer:
        if answer.status_code != 200:
            return _failed(json.loads(answer.read())["error"])
        if not stream:
            text, done = str(json.loads(answer.read())["choices"][0]["text"]), True
        for line in answer.iter_lines() if stream else ():
            if time.monotonic() > deadline:
                raise TimeoutError
            done = done or line == "data: [DONE]"
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                return _failed(event["error"])
            text += "".join(str(c.get("text") or "") for c in event.get("choices", []))
    if not done:
        return "broken", f"the stream ended after {len(text)} characters", ""
    return ("right", "", "") if text == right else ("wrong", f"{text[:80]!r} is not {right[:80]!r}", "")


def _failed(error: dict[str, Any]) -> tuple[Fate, str, str]:
    return "failed", str(error["code"]), str(error["message"])


_turns = count()


def which(agent: int) -> int:
    """The place in ASKS + FRESH of what an agent asks next."""
    turn = next(_turns) if agent == 1 else 0
    return len(ASKS) + turn // 2 % len(FRESH) if turn % 2 else agent


def unknown(prompt: str) -> str:
    """The same text begun as no other: the prefix cache has no page of it."""
    return f"{uuid.uuid4().hex} {prompt}"


class Load:
    """Agents in closed loops through `url`, one an ask of ASKS, until the block is left.

    A request that has not ended after `hung` seconds hangs.
    """

    def __init__(
        self, url: str, right: list[str], agents: tuple[int, ...] = (0, 1, 2), hung: float = HUNG
    ) -> None:
        self.url, self.right, self.hung = url, right, hung
        self.shots: list[Shot] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._agent, args=(n,), daemon=True) for n in agents]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """No new request; wait for those under way, each of which ends by its own deadline."""
        self._stop.set()
        for thread in self._threads:
            thread.join(self.hung + 15.0)

    def _agent(self, number: int) -> None:
        while not self._stop.is_set():
            ask = which(number)
            shot = shoot(self.url, (ASKS + FRESH)[ask], self.right[ask], number == 2, self.hung)
            self.shots.append(shot)
            if shot.fate != "right":
                self._stop.wait(0.1)  # an agent retries, it does not hammer

    def rights_since(self, moment: float) -> int:
        """Right answers to requests that began after `moment`."""
        return sum(s.fate == "right" and s.began >= moment for s in self.shots)

    def wait_rights(self, count: int, since: float, within: float, what: str) -> None:
        wait(lambda: self.rights_since(since) >= count, within, what)

    def fates(self) -> Counter[str]:
        return Counter(s.fate for s in self.shots)


def wait(check: Callable[[], object], within: float, what: str, every: float = 0.05) -> object:
    """Poll until `check` is true; AssertionError with `what` at the deadline."""
    end = time.monotonic() + within
    while True:
        seen = check()
        if seen:
            return seen
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        time.sleep(every)
