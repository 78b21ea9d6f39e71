"""The observer on a thread of its own, so that a loop that is not asynchronous can ask for a look."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from pdctl.errors import DeadlineError
from pdctl.flows.context import Context
from pdctl.flows.supervise.observe import Observer
from pdctl.supervisor.observation import Observation

T = TypeVar("T")
# A look ends by its own deadlines long before.
LIMIT = 120.0


class Eyes:
    """`with Eyes(ctx, hosts_every) as eyes: eyes.look()`. `ctx` is used for looks alone."""

    def __init__(self, ctx: Context, hosts_every: float) -> None:
        self._ctx, self._every = ctx, hosts_every
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="looks")

    def __enter__(self) -> Eyes:
        self._thread.start()
        self._observer = Observer(self._ctx, self._every)
        self._run(self._observer.__aenter__())
        return self

    def look(self) -> Observation:
        """DeadlineError for one that does not end, which is a fault of ours."""
        return self._run(self._observer.look())

    def _run(self, work: Coroutine[Any, Any, T], seconds: float = LIMIT) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise DeadlineError("no_look", f"A look at the fleet did not end in {seconds:g} s.") from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self._observer.__aexit__(None, None, None), 10.0)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5.0)
