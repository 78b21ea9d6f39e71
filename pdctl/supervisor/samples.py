"""What of a look is kept: one row of numbers a party, a cell and the whole fleet; pure.

`up` is 1 while it answers and takes requests, 0 while not: over time, the share of it. Rates are per second
between two looks of the same life. `kv` is the share of KV pages that requests hold. What is not known is
None. Rows of cells and of the fleet add their engines up; ages and `kv` are the largest, `up` is the least
of a cell and the mean of the fleet. An engine's `waiting` are legs, a cell's and the fleet's are requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from pdctl.supervisor.observation import EngineLook, Observation, RouterLook, requests_waiting


@dataclass(frozen=True)
class Row:
    """Numbers of one subject at one look; the columns of the table `samples`."""

    up: float | None = None
    waiting: float | None = None
    inflight: float | None = None
    running: float | None = None
    oldest: float | None = None
    prefill_rate: float | None = None
    decode_rate: float | None = None
    kv: float | None = None
    quarantined: float | None = None
    failed: float | None = None


COLUMNS = tuple(field.name for field in fields(Row))
# How many looks become one row: what matters of a queue is how bad it was, of a rate how much there was.
FOLD: Mapping[str, str] = {
    **dict.fromkeys(COLUMNS, "max"),
    **dict.fromkeys(("up", "running", "prefill_rate", "decode_rate", "kv", "failed"), "avg"),
}

Subject = tuple[str, str]  # kind (engine, router, host, cell, fleet), name


@dataclass(frozen=True)
class _Totals:
    life: tuple[str, float | None]
    monotonic: float
    prefilled: int
    generated: int
    failed: int


class Rates:
    """Counters to rates, by what each engine's look before said."""

    def __init__(self) -> None:
        self._before: dict[str, _Totals] = {}

    def of(self, look: EngineLook, now: float) -> tuple[float | None, float | None, float | None]:
        """(prefilled, generated, failed) per second; None at a life's first look."""
        if look.progress is None:
            return None, None, None
        totals = _Totals(
            look.life,
            now,
            look.progress.tokens_prefilled,
            look.progress.tokens_generated,
            sum(look.failed.values()),
        )
        before = self._before.get(look.name)
        self._before[look.name] = totals
        if before is None or before.life != totals.life or now <= before.monotonic:
            return None, None, None
        gap = now - before.monotonic
        moved = (
            totals.prefilled - before.prefilled,
            totals.generated - before.generated,
            totals.failed - before.failed,
        )
        prefilled, generated, failed = (round(max(0, m) / gap, 3) for m in moved)
        return prefilled, generated, failed


def rows(look: Observation, rates: Rates) -> dict[Subject, Row]:
    """Every subject's row of this look."""
    engines = {e.name: _engine(e, rates, look.monotonic) for e in look.engines}
    found: dict[Subject, Row] = {("engine", name): row for name, row in engines.items()}
    waiting = {cell: requests_waiting(members) for cell, members in look.cells().items()}
    for cell, members in look.cells().items():
        found["cell", cell] = _together([engines[e.name] for e in members], waiting[cell])
    whole = _together(engines.values(), sum(waiting.values()))
    ready = sum(row.up or 0.0 for row in engines.values())
    found["fleet", look.fleet] = replace(whole, up=round(ready / len(engines), 4) if engines else None)
    if look.router is not None:
        found["router", look.router.name] = _router(look.router)
    for host in look.hosts:
        found["host", host.name] = Row(up=float(host.reachable))
    return found


def _engine(e: EngineLook, rates: Rates, now: float) -> Row:
    if not e.answered:
        return Row(up=0.0)
    prefilled, generated, failed = rates.of(e, now)
    depths = {name: queue.depth for name, queue in e.queues.items()}
    pages = e.pages
    return Row(
        up=float(e.ready and e.status == "ready"),
        waiting=e.waiting if depths else None,
        inflight=depths.get("inflight"),
        running=depths.get("running"),
        oldest=_rounded(e.oldest),
        prefill_rate=prefilled,
        decode_rate=generated,
        kv=round(pages.held / pages.total, 4) if pages and pages.total else None,
        quarantined=pages.quarantined if pages else None,
        failed=failed,
    )


def _router(r: RouterLook) -> Row:
    if not r.answered:
        return Row(up=0.0)
    size = r.size if r.size is not None else sum(e.active for e in r.engines)
    waiting = r.held + sum(q.stage == "admitted" for q in r.requests)
    return Row(
        up=float(r.admission != "held"),
        waiting=waiting,
        running=max(0, size - waiting),
        oldest=_rounded(r.oldest),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _together(members: Iterable[Row], waiting: int) -> Row:
    them = list(members)

    def numbers(name: str) -> Sequence[float]:
        return [value for row in them if (value := getattr(row, name)) is not None]

    def total(name: str) -> float | None:
        found = numbers(name)
        return round(sum(found), 3) if found else None

    ups, kv = numbers("up"), numbers("kv")
    return Row(
        up=min(ups, default=None),
        waiting=float(waiting) if numbers("waiting") else None,
        inflight=total("inflight"),
        running=total("running"),
        oldest=max(numbers("oldest"), default=None),
        prefill_rate=total("prefill_rate"),
        decode_rate=total("decode_rate"),
        kv=max(kv, default=None),
        quarantined=total("quarantined"),
        failed=total("failed"),
    )
