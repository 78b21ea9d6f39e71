"""The page: verdict, remedy, cause chain with evidence, timeline, ledger, subjects, what was not judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources

from pdctl.diagnose.ledger import Entry
from pdctl.diagnose.report import Report
from pdctl.diagnose.rule import Finding
from pdctl.diagnose.unjudged import unjudged
from pdctl.diagnose.verdict import Placed
from pdctl.diagnose.words import count, span
from pdctl.facts.missing import known
from pdctl.render.html.timeline import figures

_HEADS = {"cause": "Cause", "hypotheses": "Not certain", "healthy": "Healthy"}


def page(report: Report) -> str:
    """The whole document; it loads nothing and runs no script."""
    facts = report.facts
    style = resources.files("pdctl.render.html").joinpath("style.css").read_text("utf-8")
    when = datetime.fromtimestamp(facts.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    body = [
        f"<h1>{escape(facts.fleet)}, {when}</h1>",
        _verdict(report),
        _section("Why", _chain(report.verdict.findings)),
        *(
            _section(caption, f'<div class="scroll">{svg}</div>')
            for caption, svg in figures(facts, report.ledger)
        ),
        _section("Who holds what", _ledger(report.ledger)),
        _section("Engines and router", _subjects(report)),
        _section("Not judged", _skipped(report)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(facts.fleet)}: {escape(report.verdict.summary[:80])}</title>"
        f"<style>{style}</style></head>\n<body>{''.join(body)}</body></html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _verdict(report: Report) -> str:
    verdict = report.verdict
    leader = verdict.findings[verdict.leading].finding if verdict.leading is not None else None
    head = _HEADS[verdict.status] + (f": {leader.code} {leader.title}" if leader else "")
    text = f'<p class="verdict {verdict.status}">{escape(head)}</p><p>{escape(verdict.summary)}</p>'
    if leader and leader.remedy:
        text += f'<p><span class="remedy">{escape(leader.remedy)}</span></p>'
    return text


def _items(lines: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{rows}</ul>" if rows else ""


def _article(finding: Finding, inner: str, effect: bool) -> str:
    role = "effect" if effect else finding.role
    since = (
        ""
        if finding.since is None
        else datetime.fromtimestamp(finding.since, UTC).strftime(", since %H:%M:%S")
    )
    head = f"{finding.code} {role}: {finding.title} ({finding.subject}{since})"
    asked = [f"{h.text}; to tell: {h.test}" for h in finding.hypotheses]
    remedy = (
        f'<p><span class="remedy">{escape(finding.remedy)}</span></p>'
        if finding.remedy and not effect
        else ""
    )
    return (
        f'<article class="{finding.severity.word}"><header>{escape(head)}</header>'
        f"<p>{escape(finding.summary)}</p>{_items(finding.evidence)}{_items(asked)}{remedy}{inner}</article>"
    )


def _chain(placed: Sequence[Placed]) -> str:
    """Each root with its effects inside it."""
    text = ""
    for at, root in enumerate(placed):
        if root.caused_by is None:
            inner = "".join(_article(p.finding, "", True) for p in placed if p.caused_by == at)
            text += _article(root.finding, inner, False)
    return text


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    return f'<div class="scroll"><table><tr>{heads}</tr>{body}</table></div>' if body else ""


def _ledger(ledger: Sequence[Entry]) -> str:
    moving = sum(e.settled for e in ledger)
    told = [e for e in ledger if not e.settled]
    rows = [
        (
            e.id,
            str(e.room or ""),
            e.verdict,
            e.holder or "",
            e.stage,
            span(e.stage_age),
            e.waiting_on or "",
            e.why,
        )
        for e in told
    ]
    head = ("request", "room", "verdict", "holder", "stage", "for", "waits on", "why")
    said = f'<p class="soft">{count(len(ledger), "request")}, {moving} moving.</p>'
    return said + _table(head, rows) if ledger else ""


def _subjects(report: Report) -> str:
    rows = []
    shown = {e.name: e.state for e in report.facts.engines}
    versions = {name: s.versions.get("engine", "") for name, s in shown.items() if known(s)}
    for party in report.facts.parties:
        unit = party.member.unit
        state = unit.state if known(unit) else ""
        told = party.traces
        version = told.version or versions.get(party.name, "")
        rows.append((party.name, party.role, party.member.host, state, told.kind, version, told.health))
    return _table(("name", "role", "host", "unit", "kind", "version", "health"), rows)


def _skipped(report: Report) -> str:
    reasons: dict[str, list[str]] = {}
    for skip in report.ran.skipped:
        reasons.setdefault(f"{skip.subject or 'fleet'}: {skip.reason}", []).append(skip.code)
    unread = [f"document {name} was not read: {why}" for name, why in report.facts.unread]
    told = [f"{why} ({', '.join(dict.fromkeys(codes))})" for why, codes in sorted(reasons.items())]
    whole = f"<details><summary>rule by rule</summary>{_items(told)}</details>" if told else ""
    return _items([*unread, *unjudged(report)]) + whole
