"""One host's documents as its view: kernel log and what its tools printed; pure."""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.adapters.signs import TABLE
from pdctl.adapters.traces import Event, HostTraces
from pdctl.bundle.layout import What, place
from pdctl.bundle.told import HostTable
from pdctl.diagnose.facts import HostView
from pdctl.facts.clock import Clock
from pdctl.facts.missing import Missing

_UNSEEN = Missing("the bundle does not show it")


def view(name: str, documents: Mapping[str, str], told: HostTable | None, at: float) -> HostView:
    """Everything that the documents and `told` say of one host."""
    told = told or HostTable()
    events: list[Event] = []
    for path, text in documents.items():
        where = place(path)
        if where is not None and where.what is What.KERNEL:
            events += TABLE.scan(text, name, path, at)
    numbers = dict(told.numbers)
    if told.clock_offset is not None:
        numbers["clock_offset"] = told.clock_offset
    return HostView(
        name=name,
        address=told.address,
        clock=Clock(told.clock_offset, 0.0) if told.clock_offset is not None else _UNSEEN,
        disk=_UNSEEN,
        ports=_UNSEEN,
        reach=_UNSEEN,
        traces=HostTraces(events=tuple(events), numbers=numbers),
    )
