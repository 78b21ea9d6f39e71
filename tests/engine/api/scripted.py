"""A group client in memory that plays a script, a text model of one byte a token, and real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.api import build_app
from engine.core.types import Logprob, Request
from engine.http.serve import listen, serve
from engine.text.model import TextModel
from engine.text.template import ChatTemplate

TOKEN, DRILL = "fleet", "drill"


@dataclass(frozen=True)
class Output:
    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    code: str | None = None
    message: str = ""
    logprobs: list[Logprob] = field(default_factory=list)


@dataclass(frozen=True)
class Info:
    instance: str = "engine-0"
    role: str = "both"
    model_path: str = "/models/tiny"
    served_model_name: str = "tiny"
    max_model_len: int = 64


def text_model() -> TextModel:
    """256 byte tokens after <eos>; a chat template that marks turns."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [], trainers.BpeTrainer(initial_alphabet=alphabet, special_tokens=["<eos>"])
    )
    template = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
    return TextModel(tokenizer, ChatTemplate(template, {}))


TEXT = text_model()


def spell(text: str, finish: str | None = "length", each: int = 1) -> list[Output]:
    """Outputs of `each` tokens that spell `text`, the last with `finish`."""
    tokens = TEXT.encode(text)
    parts = [tokens[i : i + each] for i in range(0, len(tokens), each)]
    return [*(Output(p) for p in parts[:-1]), Output(parts[-1], finish)]


def state(role: str) -> dict[str, Any]:
    """A complete /v1/state document."""
    stages = ("waiting", "prefilling", "inflight", "preallocated", "transferring", "ready", "running")
    request = {"id": "r", "prompt_tokens": 5, "output_tokens": 2}
    return {
        "schema": 1, "instance": "engine-0", "role": role, "cell": "a", "incarnation": "00" * 8, "pid": 1,
        "started_at": 1.5, "now": 2.5, "address": "h:1", "bootstrap": "h:7777", "status": "ready",
        "ready": True, "not_ready": [], "snapshot_age_s": 0.1,
        "versions": {"engine": "0", "python": "3", "torch": "2", "nixl": "1"},
        "fingerprint": {"model": "d", "tp": 2},
        "progress": {"steps": 3, "last_step_age_s": None, "stepping_s": None, "loop_age_s": 0.0,
                     "tokens_generated": 4, "tokens_prefilled": 5},
        "queues": {s: {"depth": int(s == "inflight"), "oldest_age_s": 61.5 if s == "inflight" else None}
                   for s in stages},
        "requests": [request],
        "peers": [{"instance": "p", "linked": True}, {"instance": "q", "linked": False}],
        "pages": {"total": 10, "free": 7, "cached": 3, "held": 2, "quarantined": 1, "page_size": 16},
        "counters": {"requests_received": 9, "requests_done": 5, "requests_aborted": 1,
                     "requests_failed": {"kv_transfer_timeout": 2}, "deadlines_fired": {"inflight": 2},
                     "late_completions": 0, "transfers_ok": 5, "transfers_failed": 2, "transfer_bytes": 100,
                     "transfer_seconds": 0.5, "preemptions": 0, "prefix_tokens": 100,
                     "prefix_tokens_hit": 70},
        "dwell": {"le": [0.01, 0.1, 1], "counts": [1, 4, 5], "total": 6, "sum": 62.0, "recent": []},
    }  # fmt: skip


class Scripted:
    """Plays `script`, then waits for ever when it has no end; remembers what it was asked."""

    def __init__(self, script: Sequence[Output] = (), *, role: str = "both") -> None:
        self.info = Info(role=role)
        self.script = list(script)
        self.submitted: list[Request] = []
        self.aborted: list[tuple[str, str]] = []
        self.verbs: list[tuple[str, dict[str, Any]]] = []
        self.document = state(role)
        self.gate = asyncio.Event()
        self.gate_before: int | None = None  # index of the output that waits for the gate
        self.closed = 0

    async def submit(self, request: Request) -> AsyncGenerator[Output, None]:
        self.submitted.append(request)
        try:
            for at, output in enumerate(self.script):
                if at == self.gate_before:
                    await self.gate.wait()
                yield output
            if not self.script or (self.script[-1].finish is None and self.script[-1].code is None):
                await asyncio.Event().wait()
        finally:
            self.closed += 1

    async def abort(self, id: str, by: str) -> bool:
        self.aborted.append((id, by))
        return id == "known"

    async def abort_room(self, room: int, by: str) -> bool:
        self.aborted.append((str(room), by))
        return True

    def state(self) -> dict[str, Any]:
        return self.document

    async def admin(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        self.verbs.append((verb, args))
        return {"verb": verb}


def app(client: Scripted, token: str | None = TOKEN, drill: str | None = DRILL) -> Starlette:
    return build_app(client, TEXT, token, drill)


def call(
    client: Scripted, path: str, body: Any = None, *, method: str = "POST", **kwargs: Any
) -> httpx.Response:
    """One request to the app, in process. For what streams or disconnects use `serving`."""

    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app(client))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
            return await http.request(method, path, json=body, **kwargs)

    return asyncio.run(go())


@asynccontextmanager
async def serving(application: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """The app on a real socket."""
    stop, up = asyncio.Event(), asyncio.Event()
    with listen("127.0.0.1", 0) as sock:
        task = asyncio.create_task(serve(application, "", 0, stop=stop, sock=sock, grace=1, started=up.set))
        await asyncio.wait_for(up.wait(), 10)
        base = f"http://127.0.0.1:{sock.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=20) as http:
            yield http
        stop.set()
        await asyncio.wait_for(task, 10)


async def until(check: Any, seconds: float = 10.0) -> None:
    """Poll until `check()` is true."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.005)
