"""Noticing that a client is gone, or takes nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Message, Receive, Send

# A reader that takes nothing for this long has lost its connection without saying so.
_SEND_DEADLINE = 120.0


class Stalled(Exception):
    """The client reads nothing; the answer cannot be completed."""


async def send_patiently(send: Send, message: Message) -> None:
    """Send, waiting for a slow reader; Stalled when it takes nothing for _SEND_DEADLINE seconds."""
    try:
        async with asyncio.timeout(_SEND_DEADLINE):
            await send(message)
    except TimeoutError:
        raise Stalled(f"the client read nothing for {_SEND_DEADLINE:g} s") from None


async def disconnected(receive: Receive) -> None:
    """Returns when the client has closed its side. The body must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel what still runs and wait for it to have cleaned up; results and errors stay in the tasks."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` to its end and return True, or cancel it when the client leaves and return False."""
    task = asyncio.create_task(work)
    watch = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return False
        task.result()
        return True
    finally:
        await cancel(task, watch)
        # A failed task holds its error, whose traceback holds this frame and all the request was made of:
        # without this the body of every refused request stays until a full garbage collection.
        del task, watch
