"""Requests of a drill's own: sent through the router on threads, told apart by their ids, ended with it."""

from __future__ import annotations

import secrets
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial

from pdctl.errors import PdctlError
from pdctl.flows.admission import abort
from pdctl.flows.context import Context
from pdctl.flows.foreign import authorization, completion, is_foreign
from pdctl.flows.http import call
from pdctl.remote.fanout import begin

PATIENCE = 120.0
_PROMPT = "This request belongs to a drill. Count from one to five."


class Requests:
    """Greedy completions; an id is `drill-…`, and "" stands for an answer with text."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._sent: dict[str, Future[str]] = {}

    @property
    def ids(self) -> list[str]:
        return list(self._sent)

    def send(self, count: int = 1, tokens: int = 4) -> list[str]:
        """Their ids. Nothing is sent where the fleet file names no router."""
        if self._ctx.fleet.router.kind == "none":
            return []
        ids = [f"drill-{secrets.token_hex(6)}" for _ in range(count)]
        self._sent |= {id: begin(partial(self._one, id, tokens)) for id in ids}
        return ids

    def _one(self, id: str, tokens: int) -> str:
        fleet = self._ctx.fleet
        headers = {"X-Request-ID": id, **authorization(self._ctx, [fleet.router, *fleet.engines()])}
        body = completion(fleet.model.name, _PROMPT, tokens) | {"ignore_eos": True}
        try:
            url = f"{fleet.router.url}/v1/completions"
            status, answer = call(self._ctx, "POST", url, PATIENCE, body, headers)
        except PdctlError as error:
            return error.code
        if status != 200:
            said = answer.get("error")
            return str((said.get("code") if isinstance(said, dict) else None) or f"http_{status}")
        text = str((answer.get("choices") or [{}])[0].get("text") or "")
        return "" if text.strip() else "empty"

    def outcomes(self, ids: list[str], seconds: float) -> list[str]:
        """Empty or the code of each, `silent` for one that has not ended `seconds` from now."""
        wait([self._sent[id] for id in ids], seconds)
        return [self._sent[id].result() if self._sent[id].done() else "silent" for id in ids]

    def end(self, ids: list[str] | None = None) -> None:
        """Abort what still runs of `ids`, of everything sent by default."""
        for id in self._sent if ids is None else ids:
            if not self._sent[id].done() and not is_foreign(self._ctx.fleet.router):
                with suppress(PdctlError):
                    abort(self._ctx, id)
