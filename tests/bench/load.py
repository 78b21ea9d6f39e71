"""A closed loop of streaming clients over /v1/completions, in plain asyncio.

One client of the same code measures every side. TTFT is the time from the request's first byte sent to
the first event with text; ITL is the time between two successive events, so a server that puts two tokens
in one event shows one longer gap. Tokens are counted from the server's `usage`.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

REQUEST_DEADLINE = 300.0  # seconds; a request past it counts as failed


@dataclass
class Sample:
    """One request: seconds, except `tokens`; `error` is None when it went through."""

    ttft: float = 0.0
    itl: list[float] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True)
class Target:
    """Where requests go. `extra` fields are merged into each body."""

    url: str
    model: str
    extra: dict[str, object] = field(default_factory=dict)


def prompts(seed: int, count: int, length: int) -> list[list[int]]:
    """Random token ids: the same for each side of a comparison, never a shared prefix."""
    rng = random.Random(seed)
    return [[rng.randrange(1000, 40000) for _ in range(length)] for _ in range(count)]


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Body lines of an HTTP/1.1 answer after its head; undoes chunked coding; ConnectionError when cut."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = head.split(b" ", 2)[1]
    chunked = b"transfer-encoding: chunked" in head.lower()
    rest = b""
    while True:
        if chunked:
            size = int(await reader.readline() or b"0", 16)
            data = (await reader.readexactly(size + 2))[:-2]
        else:
            data = await reader.read(65536)
        if not data:
            break
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line
        if status != b"200":
            rest = data
            break
    if status != b"200":
        raise ConnectionError(f"HTTP {status.decode()}: {rest[:200].decode(errors='replace')}")
    if rest:
        yield rest


async def one(target: Target, prompt: list[int], max_tokens: int) -> Sample:
    """Send one streaming request and read it to its end; a failure is in the sample, never raised."""
    sample = Sample()
    try:
        await asyncio.wait_for(_one(target, prompt, max_tokens, sample), REQUEST_DEADLINE)
    except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError) as error:
        sample.error = f"{type(error).__name__}: {error}"
    return sample


async def _one(target: Target, prompt: list[int], max_tokens: int, sample: Sample) -> None:
    body = {
        "model": target.model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **target.extra,
    }
    data = json.dumps(body).encode()
    parts = urlsplit(target.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        start = last = time.perf_counter()
        writer.write(f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        async for line in lines(reader):
            now = time.perf_counter()
            if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
                continue
            event = json.loads(line[5:])
            if "error" in event:
                raise ConnectionError(json.dumps(event["error"])[:200])
            sample.tokens = (event.get("usage") or {}).get("completion_tokens", sample.tokens)
            if not event.get("choices"):
                continue
            if sample.ttft == 0.0:
                sample.ttft = now - start
            else:
                sample.itl.append(now - last)
            last = now
        sample.seconds = last - start
    finally:
        writer.close()


@dataclass(frozen=True)
class Point:
    """One closed-loop run: `clients` at once, `samples` of every request, wall time in seconds."""

    clients: int
    samples: list[Sample]
    wall: float

    @property
    def good(self) -> list[Sample]:
        return [s for s in self.samples if s.error is None]

    @property
    def errors(self) -> list[str]:
        return [s.error for s in self.samples if s.error is not None]

    @property
    def tokens_per_s(self) -> float:
        return sum(s.tokens for s in self.good) / self.wall


def closed_loop(target: Target, work: list[list[int]], clients: int, max_tokens: int) -> Point:
    """Send `work` with `clients` requests in flight at a time; each client sends its next when one ends."""

    async def drive() -> Point:
        todo = iter(work)
        samples: list[Sample] = []

        async def client() -> None:
            for prompt in todo:
                samples.append(await one(target, prompt, max_tokens))

        start = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        return Point(clients, samples, time.perf_counter() - start)

    return asyncio.run(drive())
