"""One host's documents as its view: kernel log and what its tools printed; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pdctl.adapters.hosttexts.read import host_traces
from pdctl.adapters.signs import TABLE
from pdctl.adapters.traces import Event
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
    texts: list[tuple[str, str]] = []
    for path, text in documents.items():
        where = place(path)
        if where is None:
            continue
        events += TABLE.scan(text, name, path, at)
        if where.what is not What.KERNEL:
            texts.append((where.name, text))
    read = host_traces(texts, events, at)
    numbers = {**read.numbers, **told.numbers}
    if told.clock_offset is not None:
        numbers["clock_offset"] = told.clock_offset
    offset = numbers.get("clock_offset")
    return HostView(
        name=name,
        address=told.address,
        clock=Clock(offset, 0.0) if offset is not None else _UNSEEN,
        disk=_UNSEEN,
        ports=_UNSEEN,
        reach=_UNSEEN,
        traces=replace(read, numbers=numbers),
    )
