"""pdctl load"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import httpx
import typer

from pdctl.cli import interrupt
from pdctl.cli.session import Session, session
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.fleet.names import nearest
from pdctl.flows.load import trace
from pdctl.flows.load.client import Target
from pdctl.flows.load.endpoint import known
from pdctl.flows.load.plan import Agent, Shape
from pdctl.flows.load.report import LoadReport
from pdctl.flows.load.run import Load, Way, straight, target_of, way_of
from pdctl.render.load import View, show_load
from pdctl.render.table import show_json

_FAIL_ON = ("failed", "hung", "never")
_AGENTS, _SECONDS, _ROUNDS = 4, 60.0, 100_000

Agents = Annotated[
    int | None, typer.Option(min=1, max=4096, help=f"Closed loop: so many at once (default {_AGENTS}).")
]
Rate = Annotated[
    float | None,
    typer.Option(min=0.001, max=1000, help="Open loop: so many agents arrive a second, by chance."),
]
Rounds = Annotated[
    int | None,
    typer.Option(min=1, max=_ROUNDS, help="Most rounds of one agent (5; with --seconds as many as fit)."),
]
Seconds = Annotated[
    float | None, typer.Option(min=0.1, max=86400, help="No round begins later (60; a trace's own length).")
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed asks the same.")]
Tokens = Annotated[int, typer.Option(min=1, max=65536, help="Longest answer; each is half of it or more.")]
Prompt = Annotated[int, typer.Option(min=1, max=65536, help="Usual words of what an agent says.")]
Pause = Annotated[float, typer.Option(min=0, max=3600, help="Mean seconds between rounds, as for a tool.")]
Burst = Annotated[
    float, typer.Option(min=0, max=3600, help="Send at multiples of so many seconds only: together.")
]
Abort = Annotated[float, typer.Option(min=0, max=1, help="Share of requests that the client gives up.")]
Long = Annotated[float, typer.Option(min=0, max=1, help="Share of agents that begin with a long text.")]
Longest = Annotated[
    int, typer.Option("--context", min=64, max=1 << 20, help="Tokens of a conversation, within the model's.")
]
Most = Annotated[int, typer.Option(min=1, max=4096, help="Most requests under way at once.")]
Deadline = Annotated[float, typer.Option(min=0.1, max=86400, help="Seconds after which a round hangs.")]
Stream = Annotated[bool, typer.Option("--stream/--no-stream", help="Read answers as streams.")]
Chat = Annotated[bool, typer.Option("--chat", help="Ask by /v1/chat/completions.")]
Url = Annotated[
    str | None, typer.Option(metavar="URL", help="Any OpenAI-compatible endpoint; no fleet is needed.")
]
Model = Annotated[str, typer.Option(metavar="NAME", help="With --url: the model, else its first.")]
Key = Annotated[
    str | None, typer.Option("--key-env", metavar="VARIABLE", help="With --url: where its API key is.")
]
Replayed = Annotated[
    Path | None, typer.Option("--trace", metavar="FILE", help="Replay requests, a JSON object a line.")
]
Recorded = Annotated[
    Path | None, typer.Option("--record", metavar="FILE", help="Write what was sent, as such a trace.")
]
FailOn = Annotated[str, typer.Option(metavar="WHAT", help="Exit 3 for: failed (or hung), hung, never.")]


def command(
    ctx: typer.Context,
    agents: Agents = None,
    rate: Rate = None,
    rounds: Rounds = None,
    seconds: Seconds = None,
    seed: Seed = 0,
    tokens: Tokens = 16,
    prompt: Prompt = 16,
    pause: Pause = 0.0,
    burst: Burst = 0.0,
    abort: Abort = 0.0,
    long: Long = 0.0,
    context: Longest = 2048,
    most: Most = 256,
    deadline: Deadline = 60.0,
    stream: Stream = True,
    chat: Chat = False,
    url: Url = None,
    model: Model = "",
    key: Key = None,
    traced: Replayed = None,
    record: Recorded = None,
    fail_on: FailOn = "failed",
) -> Exit:
    """Load a fleet, or any endpoint, with agents whose conversations grow round by round.

    A round that has not ended at its deadline hangs: it is named by its request id, with the stage in which
    the router and its engines have it. Exit 3 when rounds failed or hung; Ctrl-C shows what there is so far.
    """
    _refuse(agents, rate, traced, url, model, key, fail_on)
    s = session(ctx)
    plan = trace.read(traced.expanduser(), seed) if traced is not None else None
    shape = Shape(
        agents=agents or _AGENTS,
        seconds=_lasts(plan, deadline) if seconds is None else seconds,
        rounds=rounds or (5 if seconds is None else _ROUNDS),
        tokens=tokens,
        deadline=deadline,
        rate=rate or 0.0,
        prompt=prompt,
        pause=pause,
        burst=burst,
        abort=abort,
        long=long,
        context=context,
        most=most,
        stream=stream,
        chat=chat,
    )
    return _shown(s, _endpoint(s, url, model, key), shape, seed, plan, traced, record).exit(fail_on)


def _shown(
    s: Session,
    where: AbstractContextManager[tuple[Target, Way]],
    shape: Shape,
    seed: int,
    plan: list[Agent] | None,
    traced: Path | None,
    record: Path | None,
) -> LoadReport:
    """Run it and show what it came to."""
    with where as (target, way):
        report = _run(target, way, shape, seed, plan, traced, record, View(quiet=s.json))
    if s.json:
        show_json(report.document())
    else:
        show_load(report)
    return report


def _lasts(plan: list[Agent] | None, deadline: float) -> float:
    """Seconds of a load that was given none: a replay goes to its end."""
    return _SECONDS if plan is None else trace.lasts(plan) + deadline


def _run(
    target: Target,
    way: Way,
    shape: Shape,
    seed: int,
    plan: list[Agent] | None,
    traced: Path | None,
    record: Path | None,
    view: View,
) -> LoadReport:
    target, length = asyncio.run(known(target, way))
    if length is not None and plan is None:
        shape = replace(shape, context=min(shape.context, length))
    load = Load(target, shape, way, seed=seed, plan=plan, trace=str(traced or ""), seen=view.seen)

    async def shown() -> None:
        running = asyncio.create_task(load.run())
        try:
            while not running.done():
                await asyncio.wait([running], timeout=view.every)
                if not running.done():
                    view.tick(load.report())
        finally:
            running.cancel()
            await asyncio.wait([running])
        running.result()

    if record is None:
        with view:
            return load.report(interrupted=interrupt.cut_short(shown()))
    # What was recorded once is not written over.
    with record.expanduser().open("x", encoding="utf-8") as out, view:
        view.more = trace.Recorder(out)
        return load.report(interrupted=interrupt.cut_short(shown()))


def _refuse(
    agents: int | None,
    rate: float | None,
    traced: Path | None,
    url: str | None,
    model: str,
    key: str | None,
    fail_on: str,
) -> None:
    """Options that do not go together, and words that are none of theirs."""
    if fail_on not in _FAIL_ON:
        raise ConfigError("bad_level", f"--fail-on {fail_on} is not known.", nearest(fail_on, _FAIL_ON))
    loops = {"--agents": agents, "--rate": rate, "--trace": traced}
    given = [name for name, value in loops.items() if value is not None]
    if len(given) > 1:
        raise ConfigError("load_loop", f"{given[0]} and {given[1]} do not go together.", "Leave one out.")
    if url is None and (model or key is not None):
        raise ConfigError("load_url", f"{'--model' if model else '--key-env'} is for --url.")


@contextmanager
def _endpoint(s: Session, url: str | None, model: str, key: str | None) -> Iterator[tuple[Target, Way]]:
    if url is None:
        with s.context() as context:
            yield target_of(context), way_of(context)
        return
    base = url.rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(base)
        known_port = parts.port != 0 and bool(httpx.URL(base).host)
    except (ValueError, httpx.InvalidURL):
        known_port = False
    if not known_port or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("load_url", f"--url {url} is no address.", "It is like http://127.0.0.1:8100.")
    headers = {}
    if key is not None:
        value = os.environ.get(key, "")
        if not value:
            raise ConfigError("load_key", f"--key-env {key}: there is no such variable, or it is empty.")
        headers["Authorization"] = f"Bearer {value}"
    yield Target(base, model, headers), straight
