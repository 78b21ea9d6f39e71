"""What happened when, as SVG: queues and load over time, requests as bars, log lines and changes as marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from pdctl.adapters.traces import Event
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.ledger import Entry
from pdctl.diagnose.words import span
from pdctl.render.html.depth import label, line, spans, steps

WIDTH, LEFT, ROW, BAND, PLOT = 960, 190, 18, 40, 80
MARKS, BARS = 400, 30  # drawn at most
# Numbers that are drawn, those of one line together with the same scale.
PLOTTED = (
    (
        "queues",
        ("waiting", "waiting_kv", "queue_bootstrap", "queue_inflight", "queue_prealloc", "queue_transfer"),
    ),
    ("running", ("running",)),
    ("KV in use", ("kv_usage",)),
)
COLOURS = ("#1f6feb", "#c62828", "#b26a00", "#2e7d32", "#7b4fd0", "#0e8a8a")
_BARS = {
    "stuck": "#c62828",
    "forgotten": "#c62828",
    "orphan": "#b26a00",
    "unknown": "#7b4fd0",
    "moving": "#2e7d32",
}


@dataclass(frozen=True)
class Axis:
    """Unix seconds to x."""

    first: float
    last: float

    def x(self, at: float) -> float:
        width = max(self.last - self.first, 1e-9)
        return LEFT + (WIDTH - LEFT - 12) * min(1.0, max(0.0, (at - self.first) / width))

    def ticks(self) -> list[float]:
        return [self.first + (self.last - self.first) * i / 4 for i in range(5)]


def _span_of(facts: Facts, ledger: Sequence[Entry]) -> Axis:
    """From the first thing that is known to the moment of the verdict, a minute at least."""
    times = [r.at for p in facts.parties for r in p.traces.readings if r.at is not None]
    times += [e.at for p in facts.parties for e in p.traces.events if e.at is not None]
    times += [c.at for c in facts.changes if c.at is not None]
    times += [e.since for e in ledger]
    times += [begin for _, _, inside in spans(facts) for begin, _ in inside]
    near = [t for t in times if t <= facts.at + 60]
    first = min(near, default=facts.at - 60)
    return Axis(first if facts.at - first > 1.0 else facts.at - 60, max([facts.at, *near]))


def _clock(at: float, axis: Axis) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return moment.strftime("%m-%d %H:%M" if axis.last - axis.first > 86400 else "%H:%M:%S")


def _axis(axis: Axis, height: float) -> str:
    parts = []
    for at in axis.ticks():
        x = axis.x(at)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height:.0f}"/>')
        anchor = "end" if at == axis.last else "middle" if at > axis.first else "start"
        parts.append(
            f'<text x="{x:.1f}" y="{height + 13:.0f}" text-anchor="{anchor}">{_clock(at, axis)}</text>'
        )
    return f'<g class="axis">{"".join(parts)}</g>'


def _svg(body: str, axis: Axis, height: float, label: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height + 18:.0f}" role="img" aria-label="{escape(label)}">'
    return f"{head}{_axis(axis, height)}{body}</svg>"


def _plot(party: Party, names: Sequence[str], axis: Axis, top: float) -> tuple[str, list[str]]:
    """Lines of one party's numbers in one band; and its legend."""
    series = [(n, [(at, v) for at, v in party.traces.numbers(n) if at is not None]) for n in names]
    series = [(n, points) for n, points in series if len(points) > 1]
    most = max((v for _, points in series for _, v in points), default=0.0) or 1.0
    body, legend = "", []
    for number, (name, points) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{axis.x(at):.1f},{top + PLOT - 8 - (PLOT - 16) * v / most:.1f}" for at, v in points)
        body += f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        legend.append(f'<tspan x="0" dy="{12 if number else 0}" fill="{colour}">{escape(name)}</tspan>')
    if series:
        body += f'<text x="{LEFT - 8}" y="{top + 14:.0f}" text-anchor="end">{most:g}</text>'
    return body, legend


def plots(facts: Facts, axis: Axis) -> str:
    """One figure a party that has numbers at two times at least."""
    figures = []
    for party in facts.parties:
        body, bands = "", 0
        for title, names in PLOTTED:
            drawn, legend = _plot(party, names, axis, bands * PLOT)
            if not drawn:
                continue
            top = bands * PLOT
            body += f'<text x="0" y="{top + 14}">{escape(title)}</text>{drawn}'
            body += f'<text x="0" y="{top + 27}">{"".join(legend)}</text>'
            bands += 1
        if bands:
            svg = _svg(body, axis, bands * PLOT, f"{party.name} over time")
            figures.append(f"<figure><figcaption>{escape(party.name)}</figcaption>{svg}</figure>")
    return "".join(figures)


def depths(facts: Facts, axis: Axis) -> str:
    """One stair a queue that anybody was in, with how many at most."""
    rows = [(whose, queue, inside) for whose, queue, inside in spans(facts) if inside]
    body = ""
    for number, (whose, queue, inside) in enumerate(rows):
        top = number * BAND
        stair = steps(inside, axis.first, axis.last)
        most = max(depth for _, depth in stair) or 1
        points = [(axis.x(at), top + BAND - 6 - (BAND - 14) * depth / most) for at, depth in stair]
        colour = COLOURS[number % len(COLOURS)]
        body += f'<text x="0" y="{top + 14}">{label(whose, queue)}</text>'
        body += f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end">{most}</text>'
        body += f'<polyline points="{line(points)}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    return _svg(body, axis, len(rows) * BAND, "queue depth over time") if rows else ""


def bars(ledger: Sequence[Entry], at: float, axis: Axis) -> str:
    """Requests that have something to tell, each from the start of its stage to now; oldest first."""
    told = [e for e in ledger if not e.settled][:BARS]
    body = ""
    for number, entry in enumerate(told):
        y = number * ROW
        x, end = axis.x(entry.since), axis.x(at)
        colour = _BARS.get(entry.verdict, "#1f6feb")
        title = f"{entry.id}: {entry.verdict}, {entry.stage} for {span(entry.stage_age)}; {entry.why}"
        body += f'<text x="0" y="{y + 13}">{escape(entry.id[:24])}</text>'
        body += f'<rect x="{x:.1f}" y="{y + 4}" width="{max(2.0, end - x):.1f}" height="{ROW - 7}" rx="2" '
        body += f'fill="{colour}"><title>{escape(title)}</title></rect>'
    return _svg(body, axis, len(told) * ROW, "requests by age") if told else ""


def marks(facts: Facts, axis: Axis) -> str:
    """Log lines with a meaning, a row a log; and what was done to the fleet."""
    rows: list[tuple[str, list[tuple[float, str, str]]]] = []
    done = [
        (c.at, f"{c.what} {c.party} {c.name} {c.value}".strip(), COLOURS[3]) for c in facts.changes if c.at
    ]
    if done:
        rows.append(("done to it", [(at, text, colour) for at, text, colour in done]))
    for name, events in [*((p.name, p.traces.events) for p in facts.parties), *_hosts(facts)]:
        seen = [(e.at, e.line, COLOURS[1]) for e in events if e.at is not None][:MARKS]
        if seen:
            rows.append((name, seen))
    body = ""
    for number, (name, row) in enumerate(rows):
        y = number * ROW
        body += f'<text x="0" y="{y + 13}">{escape(name[:24])}</text>'
        for at, text, colour in row:
            body += f'<circle cx="{axis.x(at):.1f}" cy="{y + 9}" r="4" fill="{colour}" fill-opacity="0.7">'
            body += f"<title>{escape(text)}</title></circle>"
    return _svg(body, axis, len(rows) * ROW, "log lines and changes") if rows else ""


def _hosts(facts: Facts) -> Iterable[tuple[str, tuple[Event, ...]]]:
    return ((h.name, h.traces.events) for h in facts.hosts)


def figures(facts: Facts, ledger: Sequence[Entry]) -> list[tuple[str, str]]:
    """(caption, SVG or HTML) of everything that has something to show."""
    axis = _span_of(facts, ledger)
    drawn = [
        ("Requests, from the start of their stage", bars(ledger, facts.at, axis)),
        ("What was done and what the logs said (point at a mark to read it)", marks(facts, axis)),
        ("Queue depth", depths(facts, axis)),
        ("Queues and load", plots(facts, axis)),
    ]
    return [(caption, body) for caption, body in drawn if body]
