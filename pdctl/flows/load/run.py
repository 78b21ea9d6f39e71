"""Run a load: agents in rounds against one endpoint, every wait bounded, every request accounted for."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import httpx

from pdctl.errors import ConfigError
from pdctl.flows.context import Context
from pdctl.flows.foreign import authorization
from pdctl.flows.load.client import Answer, Request, Target, send
from pdctl.flows.load.plan import Agent, Prompt, Shape, Turn, agents
from pdctl.flows.load.report import HUNG, LoadReport, Shot
from pdctl.flows.load.where import Whereabouts
from pdctl.remote import web

# Seconds an agent waits after its first failed request, doubled for each one that follows, and the most.
_BACKOFF = (0.2, 5.0)
# A client that gives up before the first piece, or without a stream, does so after these seconds, and as
# many more for each token that it would have read.
_GIVE_UP = 0.02


# A client for so many connections.
Way = Callable[[int], httpx.AsyncClient]


@dataclass(frozen=True)
class Sent:
    """A request as it went out and what became of it: what a recording has."""

    prompt: Prompt
    tokens: int
    shot: Shot


@dataclass
class Talk:
    """An agent's conversation: who said what, and about how many tokens that is."""

    said: list[tuple[str, str]]
    tokens: int = 0

    def asks(self, turn: Turn, shape: Shape) -> Prompt:
        """The prompt of a turn; it begins anew when it would grow beyond `shape.context`."""
        if turn.whole or not isinstance(turn.text, str):
            return turn.text
        if self.tokens + len(turn.text) // 3 + turn.tokens > shape.context:
            self.said, self.tokens = [], 0
        self.said.append(("user", turn.text))
        self.tokens += len(turn.text) // 3
        if shape.chat:
            return [{"role": who, "content": text} for who, text in self.said]
        return "".join(f"{who.title()}: {text}\n" for who, text in self.said) + "Assistant:"

    def hears(self, answer: Answer) -> None:
        self.said.append(("assistant", answer.text.strip() or "..."))
        # The endpoint's count where it has one: an estimate would drift with every round.
        self.tokens = answer.asked + answer.tokens if answer.asked else self.tokens + len(answer.text) // 3


def target_of(ctx: Context) -> Target:
    """The fleet's router; ConfigError when it has none."""
    router = ctx.fleet.router
    if router.kind == "none":
        raise ConfigError("no_router", "The fleet file names no router to load.", "Name an endpoint: --url.")
    headers = authorization(ctx, [router, *ctx.fleet.engines()])
    return Target(router.url, ctx.fleet.model.name, headers)


class Load:
    """One load, whose report can be had at any moment. `seen` is told of every request that ended."""

    def __init__(
        self,
        target: Target,
        shape: Shape,
        client: Way,
        *,
        seed: int = 0,
        plan: Iterable[Agent] | None = None,
        trace: str = "",
        seen: Callable[[Sent], None] | None = None,
    ) -> None:
        """`plan` are the agents of the file `trace`, else those of the seed."""
        self.target, self.shape, self.seed, self.trace = target, shape, seed, trace
        self._plan = agents(shape, seed) if plan is None else plan
        self._make, self._seen = client, seen
        self._name = f"load-{secrets.token_hex(3)}"
        self._shots: list[Shot] = []
        self._open: dict[str, Shot] = {}
        self._running = 0
        self._turned_away = 0
        self._started_at = time.time()
        self._began = time.monotonic()
        self._ended: float | None = None

    @property
    def now(self) -> float:
        """Seconds since it began, up to its end."""
        return (self._ended if self._ended is not None else time.monotonic()) - self._began

    def report(self, interrupted: bool = False) -> LoadReport:
        waiting = tuple(replace(shot, seconds=self.now - shot.at) for shot in self._open.values())
        return LoadReport(
            url=self.target.url,
            model=self.target.model,
            seed=self.seed,
            shape=self.shape,
            trace=self.trace,
            started_at=self._started_at,
            seconds=self.now,
            shots=tuple(self._shots),
            open=waiting,
            turned_away=self._turned_away,
            interrupted=interrupted,
        )

    async def run(self) -> LoadReport:
        """Until every agent is done or `shape.seconds` are over and their last rounds have ended."""
        self._started_at, self._began = time.time(), time.monotonic()
        try:
            # One more each for the ledger, its router and the engines that are asked.
            async with self._make(self.shape.most + 16) as client, asyncio.TaskGroup() as group:
                where = Whereabouts(client, self.target.url)
                for agent in self._plan:
                    await self._until(agent.at)
                    if self._running >= self.shape.most:
                        self._turned_away += 1
                        continue
                    self._running += 1
                    group.create_task(self._agent(client, where, agent))
        except ExceptionGroup as group:
            # Of our own making (a recording that cannot be written): all agents stop for the first.
            raise group.exceptions[0] from None
        finally:
            self._ended = time.monotonic()
        return self.report()

    async def _until(self, at: float) -> None:
        """The moment `at` of the load, at once when it is over, and never beyond the load's end."""
        left = min(at, self.shape.seconds) - self.now
        if left > 0:
            await asyncio.sleep(left)

    def _due(self, turn: Turn, backoff: float) -> float:
        at = max(turn.at, self.now + max(turn.pause, backoff))
        return math.ceil(at / self.shape.burst) * self.shape.burst if self.shape.burst else at

    async def _agent(self, client: httpx.AsyncClient, where: Whereabouts, agent: Agent) -> None:
        talk, backoff = Talk([]), 0.0
        try:
            for number, turn in enumerate(agent.turns, 1):
                await self._until(self._due(turn, backoff))
                if self.now >= self.shape.seconds:
                    return
                request = Request(
                    f"{self._name}-a{agent.number}-r{number}",
                    talk.asks(turn, self.shape),
                    turn.tokens,
                    self.shape.stream,
                    turn.abort,
                )
                answer, shot = await self._round(client, where, request, agent.number, number)
                talk.hears(answer)
                backoff = min(2 * backoff or _BACKOFF[0], _BACKOFF[1]) if shot.code else 0.0
        finally:
            self._running -= 1

    async def _round(
        self, client: httpx.AsyncClient, where: Whereabouts, request: Request, agent: int, number: int
    ) -> tuple[Answer, Shot]:
        answer, at = Answer(request.id), self.now
        self._open[request.id] = Shot(agent, number, 0.0, "", request.id, at)
        sending = asyncio.create_task(send(client, self.target, request, answer))
        stands = None
        try:
            await asyncio.wait([sending], timeout=self._patience(request))
            took = self.now - at
            late, hung = not sending.done(), took >= self.shape.deadline
            if late and hung:
                # Asked while it is still open: an answer that nobody waits for any more is ended.
                stands = await where.of(request.id)
        finally:
            await _end(sending)
        if late and hung:
            # Also when it ended while the ledger was asked.
            answer.fails(HUNG, f"It had not ended after {self.shape.deadline:g} s.")
        elif late:
            answer.aborted = True
        shot = Shot(
            agent=agent,
            round=number,
            seconds=took,
            code=answer.code,
            id=answer.id,
            at=at,
            ttft=answer.ttft,
            tokens=answer.tokens,
            aborted=answer.aborted,
            said=answer.said,
            stands=stands,
        )
        del self._open[request.id]
        self._shots.append(shot)
        if self._seen is not None:
            self._seen(Sent(request.prompt, request.tokens, shot))
        return answer, shot

    def _patience(self, request: Request) -> float:
        """Seconds until an answer is given up, on purpose or because it hangs."""
        if request.abort is None or (request.stream and request.abort):
            return self.shape.deadline
        return min(_GIVE_UP * (1 + request.abort), self.shape.deadline)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancelled and over; what it raised of itself is raised."""
    task.cancel()
    # Not awaited itself: its cancellation could not be told from ours.
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def way_of(ctx: Context) -> Way:
    """By the way that leads to each of the fleet's hosts."""
    return lambda connections: ctx.async_client(connections=connections)


def straight(connections: int) -> httpx.AsyncClient:
    """To endpoints that this machine reaches by itself."""
    return web.async_client(lambda address: None, connections=connections)


async def drive(
    target: Context | Target, shape: Shape, *, seed: int = 0, seen: Callable[[Sent], None] | None = None
) -> LoadReport:
    """The whole load; returns when every request has ended or met its deadline."""
    if isinstance(target, Context):
        ctx = target
        return await Load(target_of(ctx), shape, way_of(ctx), seed=seed, seen=seen).run()
    return await Load(target, shape, straight, seed=seed, seen=seen).run()
