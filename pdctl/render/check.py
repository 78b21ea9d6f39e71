"""check for people: what is wrong first, with what to do about it, then the rest as a table."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pdctl.flows.check.report import CheckReport, Level, Line
from pdctl.render.paths import here
from pdctl.render.table import show_table

_MARK = {Level.OK: "ok", Level.SKIP: "--", Level.WARN: "warn", Level.FAIL: "FAIL"}
_STYLE = {Level.OK: "green", Level.SKIP: "dim", Level.WARN: "yellow", Level.FAIL: "bold red"}


def verdict(report: CheckReport) -> str:
    """One sentence for all lines."""
    fails, warns, skips = (report.count(level) for level in (Level.FAIL, Level.WARN, Level.SKIP))
    good = report.count(Level.OK)
    if not fails and not warns:
        rest = f", {skips} could not be looked at" if skips else ""
        return f"{report.fleet}: nothing is in the way. {good} good{rest}, in {report.seconds:.1f} s."
    return f"{report.fleet}: {fails} wrong, {warns} doubtful, {skips} not looked at, {good} good."


def findings(report: CheckReport) -> Iterator[tuple[str, str]]:
    """(style, text) for every line that is not good, the gravest first."""
    bad = [line for line in report.lines if line.level >= Level.WARN]
    for line in sorted(bad, key=lambda li: -li.level):
        yield _STYLE[line.level], here(f"{_MARK[line.level]:4} {line.subject}, {line.check}: {line.found}")
        yield "dim", here(f"       wanted: {line.wanted}")
        yield "", here(f"       fix: {line.fix}")


def row(line: Line) -> list[str]:
    return [_MARK[line.level], line.subject, line.check, here(line.found), here(line.wanted)]


def show(report: CheckReport) -> None:
    """Print to stdout: styled on a terminal, plain elsewhere."""
    style = _STYLE[max(report.worst(), Level.OK)]
    lines = [*findings(report), (style, verdict(report))]
    show_table(["", "subject", "check", "found", "wanted"], [row(line) for line in report.lines])
    print()
    if not sys.stdout.isatty():
        for _, text in lines:
            print(text)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for style, text in lines:
        console.print(Text(text, style=style))
