"""`pdctl status --watch` on a terminal: every engine with its last minutes, the router, what is not well."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pdctl.adapters.picture import Engine, Pages
from pdctl.flows.status import EngineStatus, FleetStatus, observation
from pdctl.render.spark import spark
from pdctl.render.status import WAITING, age, router_line, show_status, state_of, troubles
from pdctl.supervisor.trend import SPAN, Slots, Trends

COLUMNS = ("waiting", "decode_rate", "prefill_rate")
_HEADS = ("cell", "role", "engine", "state")
_NARROW = 100  # columns of a terminal
_NUMBERS = 34  # characters of what stands behind the head and is no sparkline
_LEAST, _MOST = 5, 40
_LINES = 8  # of a frame, without engines and troubles


def watch_status(look: Callable[[], FleetStatus], trends: Trends, every: float) -> None:
    """Until Ctrl-C. Elsewhere than on a terminal, one status after the other."""
    if not sys.stdout.isatty():
        while True:
            status = look()
            print(time.strftime("%H:%M:%S", time.localtime(status.at)))
            show_status(status)
            sys.stdout.flush()
            time.sleep(every)
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            status = look()
            trends.add(observation(status))
            live.update(frame(status, trends, console.width, console.height), refresh=True)
            time.sleep(every)


def frame(status: FleetStatus, trends: Trends, width: int, height: int) -> RenderableType:
    """One picture, which fits `height` lines: those that are not well first where not all fit."""
    engines = list(status.engines)
    said = troubles(status)
    room = max(1, height - _LINES - len(said))
    hidden = len(engines) - room
    if hidden > 0:
        engines = sorted(engines, key=_well)[:room]
    heads = [_head(e, width) for e in engines]
    slots = _slots(heads, width)
    lines = trends.lines("engine", [e.engine.name for e in engines], COLUMNS, slots, status.at)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in (*_HEADS[-len(heads[0]) :], "waiting", "oldest", "tokens/s", "KV"):
        table.add_column(column, no_wrap=True, justify="right" if column in ("oldest", "KV") else "left")
    for e, head in zip(engines, heads, strict=True):
        table.add_row(*head, *_numbers(e, lines))
    more = [Text(f"… and {hidden} more", style="dim")] if hidden > 0 else []
    source = "the supervisor's history" if trends.supervised(status.at) else "own looks"
    clock = time.strftime("%H:%M:%S", time.localtime(status.at))
    about = Text.assemble(
        (f"fleet {status.name}", "bold"), f"  {clock}  ", (f"{SPAN / 60:g} min of {source}", "dim")
    )
    rest = [Text(line, style="yellow") for line in said]
    below = [Text(router_line(status)), *rest]
    for text in below:
        text.no_wrap, text.overflow = True, "ellipsis"
    return Group(about, table, *more, *below)


def _head(e: EngineStatus, width: int) -> tuple[Text, ...]:
    """What stands in front of the sparklines; a narrow terminal has no room for cell and role."""
    state = Text(state_of(e), style="green" if _well(e) else "red")
    short = (Text(e.engine.name), state)
    return short if width < _NARROW else (Text(e.engine.cell), Text(e.engine.role), *short)


def _slots(heads: Sequence[tuple[Text, ...]], width: int) -> int:
    """How long the two sparklines of a row may be."""
    taken = sum(max(len(row[i]) for row in heads) + 2 for i in range(len(heads[0])))
    return max(_LEAST, min(_MOST, (width - taken - _NUMBERS) // 2))


def _well(e: EngineStatus) -> bool:
    return isinstance(e.sample.picture, Engine) and e.sample.picture.ready


def _numbers(e: EngineStatus, lines: dict[tuple[str, str], Slots]) -> tuple[RenderableType, ...]:
    picture = e.sample.picture
    waiting, decoded, prefilled = (lines[e.engine.name, column] for column in COLUMNS)
    tokens = [_sum(pair) for pair in zip(decoded, prefilled, strict=True)]
    if not isinstance(picture, Engine):
        return Text(spark(waiting)), "", Text(spark(tokens)), ""
    depth = sum(q.depth for n, q in picture.queues.items() if n in WAITING)
    ages = [q.oldest_age for n, q in picture.queues.items() if n in WAITING and q.oldest_age is not None]
    pages = picture.pages
    kv = f"{100 * pages.held / pages.total:.0f} %" if isinstance(pages, Pages) and pages.total else ""
    newest = next((t for t in reversed(tokens) if t is not None), None)
    rate = "" if newest is None else f" {newest:.0f}"
    oldest = age(max(ages)) if ages else ""
    return Text(f"{spark(waiting)} {depth}"), oldest, Text(f"{spark(tokens)}{rate}"), kv


def _sum(pair: tuple[float | None, ...]) -> float | None:
    known = [v for v in pair if v is not None]
    return sum(known) if known else None
