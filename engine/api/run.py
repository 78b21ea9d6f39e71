"""One request while it runs: outputs of the group become pieces of text; an early end aborts it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from engine.api.client import GroupClient, Output
from engine.api.prepare import Call
from engine.core.errors import EngineError, RequestError, status_of
from engine.core.types import Logprob, Request
from engine.http.errors import ParamError
from engine.text.model import TextModel
from engine.text.stops import StopStrings

log = logging.getLogger(__name__)
# Telling the group to stop is one message to another process; it must not hang a handler that is leaving.
_ABORT_DEADLINE = 5.0


@dataclass(frozen=True)
class Piece:
    """New text and the new tokens behind it; `finish` is set on the last piece of a request.

    `logprobs` has one entry a token where the request asks for them, else none.
    """

    text: str
    tokens: list[int]
    finish: str | None
    logprobs: Sequence[Logprob] = ()


class Run:
    """Serves one request of a call. Leaving `pieces()` before its end aborts the request in the group."""

    def __init__(self, client: GroupClient, text: TextModel, call: Call, request: Request) -> None:
        self._client = client
        self._request = request
        self._earlier = call.earlier
        self._detokenizer = text.detokenizer(call.prompt)
        self._stops = StopStrings(call.stops)

    def replay(self) -> str:
        """The text that the client has of the earlier tokens; what is held back of it is held back here.

        ParamError when a stop string is complete in it.
        """
        text = self._text(self._earlier)
        if self._stops.matched is not None:
            message = f"The stop string {self._stops.matched!r} ends the output, so nothing follows it."
            raise ParamError("resumable.tokens", message)
        return text

    def _text(self, tokens: Sequence[int]) -> str:
        # One at a time, however they come, so that what is held back depends on the tokens alone.
        return "".join(self._stops.add(self._detokenizer.add([token])) for token in tokens)

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Pieces up to and with the one that has `finish`; RequestError when the request failed."""
        abort_by: str | None = "client"
        outputs = self._client.submit(self._request)
        try:
            async for output in outputs:
                if output.finish is not None or output.code is not None:
                    abort_by = None
                piece = self._piece(output)
                if piece.finish is not None and abort_by is not None:
                    abort_by = "stop"
                    break
                yield piece
                if piece.finish is not None:
                    return
            else:
                raise RequestError("engine_failed", "The engine ended the request without a result.", 500)
        except EngineError:
            abort_by = None  # the group ended it
            raise
        finally:
            if abort_by is not None:
                await self._abort(abort_by)
            if isinstance(outputs, AsyncGenerator):
                await outputs.aclose()
        yield piece

    def _piece(self, output: Output) -> Piece:
        if output.code is not None:
            raise RequestError(output.code, output.message, status_of(output.code))
        if output.finish == "aborted":
            raise RequestError("aborted", "The request was aborted.", status_of("aborted"))
        text = self._text(output.tokens)
        if output.finish is not None:
            text += self._stops.add(self._detokenizer.finish())
        if self._stops.matched is not None:
            return Piece(text, output.tokens, "stop", output.logprobs)
        if output.finish is not None:
            text += self._stops.finish()
        return Piece(text, output.tokens, output.finish, output.logprobs)

    async def _abort(self, by: str) -> None:
        try:
            async with asyncio.timeout(_ABORT_DEADLINE):
                await self._client.abort(self._request.id, by)
        except TimeoutError:
            log.warning(
                "abort of %s by %s is queued and not taken after %g s: the scheduler is within a step",
                self._request.id,
                by,
                _ABORT_DEADLINE,
            )
