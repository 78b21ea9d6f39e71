"""What the API needs of the engine group behind it; the group's client has this shape."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from engine.core.types import Logprob, Request


class Output(Protocol):
    """New tokens of one request. `finish` or `code` is set on the last one; `code` means it failed.

    `logprobs` has one entry a token where the request asks for them, else none.
    """

    @property
    def tokens(self) -> list[int]: ...
    @property
    def logprobs(self) -> list[Logprob]: ...
    @property
    def finish(self) -> str | None: ...  # stop | length | aborted | handed_over
    @property
    def code(self) -> str | None: ...
    @property
    def message(self) -> str: ...


class Info(Protocol):
    """What is fixed for one life of the group."""

    @property
    def instance(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def model_path(self) -> str: ...
    @property
    def served_model_name(self) -> str: ...
    @property
    def max_model_len(self) -> int: ...  # 0 while the model is loading


class GroupClient(Protocol):
    @property
    def info(self) -> Info: ...

    def submit(self, request: Request) -> AsyncIterator[Output]:
        """Serve one request; ends after an output with `finish` or `code`. RequestError when refused."""
        ...

    async def abort(self, id: str, by: str) -> bool:
        """End a request early; `by` is client, admin, router or stop. False when it is not known."""
        ...

    async def abort_room(self, room: int, by: str) -> bool: ...

    def state(self) -> dict[str, Any]:
        """The /v1/state document."""
        ...

    async def admin(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """drain, resume, flush, relink, timeouts or faults; ConfigError or RequestError when refused."""
        ...
