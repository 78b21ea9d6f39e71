"""diagnose for people: what to do first, then why, who holds what, the evidence."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pdctl.diagnose.ledger import Entry
from pdctl.diagnose.report import Report
from pdctl.diagnose.rule import Finding, Severity
from pdctl.diagnose.unjudged import unjudged
from pdctl.diagnose.verdict import Placed
from pdctl.diagnose.words import count, some, span

_MARK = {Severity.INFO: "i", Severity.WARNING: "!", Severity.ERROR: "x"}
_STYLE = {Severity.INFO: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}
_SHOWN = 8
Line = tuple[str, str]


def story(entry: Entry) -> str:
    """One request: who holds it, in which stage, since when, why."""
    room = f" (room {entry.room})" if entry.room is not None else ""
    who = f"forgotten, the router waits for {entry.why.split(' answer')[0]}"
    if entry.verdict != "forgotten":
        waits = f", waiting on {entry.waiting_on}" if entry.waiting_on else ""
        who = f"held by {entry.holder}, {entry.stage} for {span(entry.stage_age)}{waits}: {entry.why}"
    else:
        who += f" for {span(entry.stage_age)}: {entry.why}"
    return f"{entry.id}{room} {entry.verdict}: {who}"


def _ledger(report: Report) -> Iterator[Line]:
    told = [e for e in report.ledger if not e.settled]
    moving = len(report.ledger) - len(told)
    total = count(len(report.ledger), "request")
    yield "bold", f"Ledger: {total}, {moving} moving" + (f", {len(told)} not" if told else "")
    for entry in told[:_SHOWN]:
        yield "", f"  {story(entry)}"
    if len(told) > _SHOWN:
        yield "dim", f"  and {len(told) - _SHOWN} more (--json has all)"


def _details(finding: Finding, indent: str) -> Iterator[Line]:
    for line in finding.evidence:
        yield "dim", f"{indent}- {line}"
    for h in finding.hypotheses:
        yield "", f"{indent}? {h.text}; to tell: {h.test}"
    if finding.remedy:
        yield "green", f"{indent}> {finding.remedy}"


def _finding(placed: Placed) -> Iterator[Line]:
    f = placed.finding
    indent = "    " if placed.caused_by is not None else "  "
    word = "effect" if placed.caused_by is not None else f.severity.word
    yield _STYLE[f.severity], f"{indent}{_MARK[f.severity]} {f.code} {word}, {f.subject}: {f.summary}"
    if placed.caused_by is None:
        yield from _details(f, indent + "  ")
    else:
        for line in some(f.evidence, 3):
            yield "dim", f"{indent}  - {line}"


def _do(leader: Finding) -> Iterator[Line]:
    """What to do now: the remedy of a cause, and before that of a doubt its cheapest test."""
    tests = [h.test for h in leader.hypotheses[:1]]
    if tests:
        yield "bold green", f"Test first: {tests[0]}"
    if leader.remedy and leader.remedy not in tests:
        yield "bold green", f"Remedy: {leader.remedy}"


def lines(report: Report) -> Iterator[Line]:
    """(style, text) of every line."""
    verdict = report.verdict
    if verdict.leading is None:
        yield "bold green", f"{report.facts.fleet}: {verdict.summary}"
    else:
        leader = verdict.findings[0].finding
        head = "Cause" if verdict.status == "cause" else "Not certain"
        yield from _do(leader)
        yield "bold red", f"{head}: {leader.code} {leader.title}. {verdict.summary}"
    yield "", ""
    yield from _ledger(report)
    if verdict.findings:
        yield "", ""
        yield "bold", "Findings"
    for placed in verdict.findings:
        yield from _finding(placed)
    for muted in report.muted:
        said = f"{muted.finding.code}, {muted.finding.subject}: {muted.finding.summary}"
        yield "dim", f"  - suppressed until the end of {muted.by.last_day} ({muted.by.reason}): {said}"
    if missed := unjudged(report):
        yield "", ""
        yield "dim", f"Not judged everywhere: {'; '.join(some(missed, 6))}"
    if unread := report.facts.unread:
        yield "yellow", f"Not read: {'; '.join(some([f'{name} ({why})' for name, why in unread], 8))}"
    yield (
        "dim",
        f"{count(len(report.ran.run), 'rule')} in {report.seconds:.1f} s; pdctl explain CODE says more.",
    )


def show(report: Report) -> None:
    """Print to stdout: styled on a terminal, plain elsewhere."""
    if not sys.stdout.isatty():
        for _, text in lines(report):
            print(text)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for style, text in lines(report):
        console.print(Text(text, style=style))
