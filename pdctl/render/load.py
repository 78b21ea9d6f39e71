"""A load while it runs and when it is over: rounds, times, errors, and every round that hangs by its id."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from pdctl.flows.load.report import LoadReport, Round, Shot, Spread
from pdctl.flows.load.run import Sent
from pdctl.flows.load.where import Leg, Standing
from pdctl.render.progress import Progress
from pdctl.render.status import age
from pdctl.render.table import show_table

COLUMNS = (
    *("round", "sent", "ok", "failed", "hung", "given up"),
    *("ttft p50", "p95", "total p50", "p95", "most", "tokens/s"),
)
_ROUNDS = 10  # rows of rounds; those behind are one
_NAMED = 20  # requests that are named in full
_REDRAW = 0.5
_LINE = 5.0  # seconds between two lines where nothing is redrawn


class View:
    """`tick` shows how it goes every `every` seconds, `seen` is told of each request: a live table on a
    terminal, lines on stderr elsewhere, nothing when `quiet`."""

    def __init__(self, quiet: bool) -> None:
        self._live: Any = None
        self._progress = Progress(quiet=quiet)
        if not quiet and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(auto_refresh=False, transient=True)
        self.every = _REDRAW if self._live is not None else _LINE
        self.more: Callable[[Sent], None] = lambda sent: None

    def seen(self, sent: Sent) -> None:
        self.more(sent)
        if not sent.shot.ok and self._live is None:
            self._progress.say(told(sent.shot))

    def tick(self, report: LoadReport) -> None:
        if self._live is None:
            self._progress.say(_line(report))
        else:
            self._live.update(_picture(report), refresh=True)

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


def show_load(report: LoadReport) -> None:
    """The whole of it, on stdout."""
    rows = [_row(name, one) for name, one in report.rows(_ROUNDS)]
    show_table(COLUMNS, [*rows, _row("all", report.all)], f"load of {report.url}, seed {report.seed}")
    if report.codes:
        print("errors: " + ", ".join(f"{code} {count}" for code, count in report.codes.most_common()))
    _named(report.hung)
    _named(report.failed)
    if report.open:
        print(f"{_count(len(report.open), 'round')} had not ended:")
        for shot in sorted(report.open, key=lambda s: -s.seconds)[:_NAMED]:
            print(f"  {_who(shot)}, open for {age(shot.seconds)}")
    print(_summary(report))


def told(shot: Shot) -> str:
    """A round that failed, or hangs and where: one line."""
    if not shot.hung:
        said = f": {shot.said}" if shot.said else ""
        return f"{_who(shot)} failed after {age(shot.seconds)} with {shot.code}{said}"
    return f"{_who(shot)} hung for {age(shot.seconds)}: {stands(shot.stands)}"


def stands(standing: Standing | None) -> str:
    if standing is None or standing.stage == "no ledger":
        return "the endpoint has no ledger to ask where it stands"
    if standing.stage == "unknown":
        return "the router does not know it"
    legs = [_leg(leg) for leg in (standing.prefill, standing.decode) if leg is not None]
    return "; ".join([f"router {standing.stage} for {age(standing.age_s)}", *legs])


def _leg(leg: Leg) -> str:
    known = f" for {age(leg.stage_age_s)}" if leg.stage_age_s is not None else ""
    waits = f", waits on {leg.waiting_on}" if leg.waiting_on else ""
    over = f" (leg {leg.status})" if leg.status != "pending" else ""
    return f"{leg.engine} {leg.stage}{known}{waits}{over}"


def _who(shot: Shot) -> str:
    return f"{shot.id} (agent {shot.agent}, round {shot.round})"


def _named(shots: tuple[Shot, ...]) -> None:
    for shot in shots[:_NAMED]:
        print(f"  {told(shot)}")
    if len(shots) > _NAMED:
        print(f"  and {len(shots) - _NAMED} more; --json has them all")


def _row(name: str, one: Round) -> tuple[object, ...]:
    counts = (one.sent, one.ok, one.failed, one.hung, one.aborted)
    seconds, ttft = one.seconds, one.ttft
    times = (ttft.p50, ttft.p95, seconds.p50, seconds.p95, seconds.most)
    rate = None if one.rate.p50 is None else f"{one.rate.p50:.1f}"
    return (name, *counts, *(_seconds(value) for value in times), rate)


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f} s"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _line(report: LoadReport) -> str:
    whole = report.all
    parts = [f"{whole.sent} rounds ended", f"{whole.ok} ok"]
    parts += [f"{n} {what}" for n, what in ((whole.failed, "failed"), (whole.hung, "hung")) if n]
    if report.open:
        parts.append(f"{len(report.open)} open, oldest {age(max(s.seconds for s in report.open))}")
    return ", ".join(parts) + _median(whole.seconds)


def _median(seconds: Spread) -> str:
    return "" if seconds.p50 is None else f"; half within {seconds.p50:.2f} s"


def _summary(report: LoadReport) -> str:
    whole, ways = report.all, []
    if report.interrupted:
        ways.append("interrupted")
    if report.turned_away:
        ways.append(f"{_count(report.turned_away, 'agent')} turned away, {report.shape.most} were under way")
    if not whole.sent:
        ways.append("no round ended")
    more = "".join(f"; {way}" for way in ways)
    bad = f", {whole.failed} failed, {whole.hung} hung" if whole.failed or whole.hung else ", none failed"
    given_up = f", {whole.aborted} given up on purpose" if whole.aborted else ""
    return (
        f"{_count(whole.sent, 'round')} in {report.seconds:.1f} s: {whole.ok} ok{given_up}{bad}, "
        f"{report.tokens_per_s:.1f} tokens/s{more}"
    )


def _picture(report: LoadReport) -> Any:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for name, one in [*report.rows(_ROUNDS), ("all", report.all)]:
        table.add_row(*("-" if cell is None else str(cell) for cell in _row(name, one)))
    bad = [shot for shot in report.shots if not shot.ok][-5:]
    waits = sorted(report.open, key=lambda shot: -shot.seconds)[:5]
    return Group(
        Text(f"{report.seconds:.0f} s of {report.shape.seconds:g} s: {_line(report)}"),
        table,
        *(Text(told(shot)) for shot in bad),
        *(Text(f"{_who(shot)}, open for {age(shot.seconds)}", style="dim") for shot in waits),
    )
