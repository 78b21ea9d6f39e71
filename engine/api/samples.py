"""Several answers to one prompt (`n`): a request each, which share the KV of the prompt where they can."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from engine.api.run import Piece, Run
from engine.core.types import Request
from engine.http.gone import cancel

# An odd number, so that the rooms of one request are distinct; both legs derive the same ones from the first.
_NEXT_ROOM = 0x9E3779B97F4A7C15
_ROOMS = (1 << 63) - 1


def samples_of(request: Request, n: int) -> tuple[Request, ...]:
    """`n` requests like this one; a seeded one counts its seed up, so that they differ."""
    return tuple(_sample(request, index) for index in range(n))


def _sample(request: Request, index: int) -> Request:
    if not index:
        return request
    room, seed = request.room, request.sampling.seed
    return replace(
        request,
        id=f"{request.id}.{index}",
        room=None if room is None else (room + index * _NEXT_ROOM) & _ROOMS,
        sampling=request.sampling if seed is None else replace(request.sampling, seed=seed + index),
    )


async def together(runs: Sequence[Run]) -> AsyncGenerator[tuple[int, Piece], None]:
    """Pieces of all runs as they come, each with its run's number. One that fails ends the others."""
    if len(runs) == 1:
        async with aclosing(runs[0].pieces()) as pieces:
            async for piece in pieces:
                yield 0, piece
        return
    queue: asyncio.Queue[tuple[int, Piece] | BaseException | None] = asyncio.Queue(len(runs))
    tasks = [asyncio.create_task(_pump(index, run, queue)) for index, run in enumerate(runs)]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        await cancel(*tasks)


async def _pump(index: int, run: Run, queue: asyncio.Queue[tuple[int, Piece] | BaseException | None]) -> None:
    try:
        async with aclosing(run.pieces()) as pieces:
            async for piece in pieces:
                await queue.put((index, piece))
    except Exception as error:  # noqa: BLE001 - it is raised where the pieces are read
        await queue.put(error)
    else:
        await queue.put(None)
