"""What looks become: rows in the history, and the pages that show both."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from pdctl.errors import PdctlError
from pdctl.fleet.model import Fleet
from pdctl.supervisor.history import History, unwritten
from pdctl.supervisor.live import Live
from pdctl.supervisor.observation import Observation
from pdctl.supervisor.store import prepare
from pdctl.supervisor.web.serve import Pages
from pdctl.supervisor.web.sources import Sources

# How many looks may be missing before /healthz says so, and seconds that are never too late.
MISSING, PATIENCE = 6, 60.0


class Record:
    """`with Record(fleet, say, every) as record: record.keep(look)`, entered before anything else opens
    `fleet.paths.supervisor`: a file that cannot be used is put aside then, with a sentence.

    `every` is how often looks come, seconds. `page` is "ADDRESS:PORT" of the pages, "" for none; one that
    cannot be had is said, and tried again at each look. `evidence` makes a kept bundle an HTML document.
    `live` is what the pages show beside the history: the loop sets `live.standing`.
    """

    def __init__(
        self,
        fleet: Fleet,
        say: Callable[[str], None],
        every: float = 5.0,
        page: str = "",
        evidence: Callable[[Path], str] | None = None,
    ) -> None:
        self.live = Live(stale=max(PATIENCE, MISSING * every))
        self.pages: Pages | None = None
        self._fleet, self._say, self._page, self._evidence = fleet, say, page, evidence
        self._open = ExitStack()

    def __enter__(self) -> Record:
        path = self._fleet.paths.supervisor
        if said := prepare(path):
            self._say(said)
        self._history = History(path)
        self._open.callback(self._history.close)
        if self._page:
            self._begin_pages()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def keep(self, look: Observation) -> Observation:
        """Into the history and onto the pages. Never raises: a full disk must not end the looking."""
        trouble = ""
        try:
            self._history.record(look)
        except sqlite3.Error as error:
            trouble = unwritten(error)
        self._trouble("history", trouble)
        if self._page and self.pages is None:
            self._begin_pages()
        self.live.look = look
        return look

    def _begin_pages(self) -> None:
        paths = self._fleet.paths
        sources = Sources(self.live, paths.supervisor, self._fleet.name, self._evidence)
        try:
            self.pages = self._open.enter_context(Pages(self._page, sources, paths.page_token))
        except PdctlError as error:
            self._trouble("page", error.message)
        else:
            self._trouble("page", "")
            self._say(f"pages: {self.pages.url}{self.pages.hint}")

    def _trouble(self, part: str, said: str) -> None:
        """Once when it begins and once when it is over."""
        if said and self.live.troubles.get(part) != said:
            self._say(said)
        if said:
            self.live.troubles = {**self.live.troubles, part: said}
        elif part in self.live.troubles:
            self.live.troubles = {p: t for p, t in self.live.troubles.items() if p != part}
            self._say(f"the {part} is well again")
