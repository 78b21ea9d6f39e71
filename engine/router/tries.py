"""Whether a request whose engine was lost is tried again: pure.

A try is worth it when an engine or the link between two is gone, and not when the request itself is at
fault, when somebody wanted its end, when capacity ran out (another try would take more of it), or when KV
came damaged (that is to be seen, not to be hidden).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.errors import RequestError
from engine.router.pairs import Failed, Pair, Pairs

# An engine is gone or going. Any pair will do, this one too once it answers again.
LOST = frozenset({"engine_unreachable", "engine_lost", "engine_failed", "peer_lost", "draining"})
# Two engines that live do not get on with each other: only another pair is worth a try.
EDGE = frozenset({"kv_transfer_timeout", "kv_transfer_failed", "link_failed", "peer_incompatible"})


@dataclass(frozen=True)
class _Try:
    pair: Pair
    error: RequestError

    def __str__(self) -> str:
        return f"{self.pair.prefill.instance} -> {self.pair.decode.instance} {self.error.code}"


class Tries:
    """The failed tries of one request, `limit` at most."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.failed: list[Failed] = []
        self._tries: list[_Try] = []
        self._counted = 0

    def again(
        self, pair: Pair, error: RequestError, pairs: Pairs, now: float, progress: bool
    ) -> RequestError | None:
        """Take a failed try in: None for another one, else the error to end with.

        A drain after `progress` does not count: a stream may outlive any number of restarts that were meant.
        """
        if error.code not in LOST | EDGE:
            return error
        self.failed.append(Failed(pair, now))
        self._tries.append(_Try(pair, error))
        self._counted += not (progress and error.code == "draining")
        elsewhere = error.code in LOST or pairs.another(self.failed)
        return None if self._counted < self.limit and elsewhere else self.explained(error)

    def __str__(self) -> str:
        return ", ".join(map(str, self._tries[-8:]))

    def explained(self, error: RequestError) -> RequestError:
        """The error with what was tried before it, if anything was."""
        tries = [t for t in self._tries if t.error is not error]
        if not tries:
            return error
        before = ", ".join(map(str, tries[-8:]))
        message = f"{error.message} Before that: {before} (PD_ROUTER_TRIES={self.limit})."
        return RequestError(error.code, message, error.status, error.hint)
