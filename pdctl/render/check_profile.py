"""`profile check` for people: where it stands, what is wrong with it, what to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pdctl.fleet.check.finding import Finding
from pdctl.render.paths import here

_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def verdict(name: str, findings: Sequence[Finding]) -> str:
    counts = [f"{n} {level}{'s' if n > 1 else ''}" for level, n in _counts(findings).items() if n]
    return f"{name}: {', '.join(counts)}." if counts else f"{name}: nothing is wrong with its values."


def lines(finding: Finding) -> tuple[str, str]:
    """What is wrong, and what to do about it."""
    place = f"{finding.place}: " if finding.place else ""
    units = f" [{', '.join(finding.units)}]" if finding.units else ""
    end = "" if finding.says.endswith("?") else "."
    return here(f"{place}{finding.name} {finding.says}{end}{units}"), here(finding.do)


def show_findings(name: str, findings: Sequence[Finding]) -> None:
    """Print to stdout: styled on a terminal, plain elsewhere."""
    styled = [(f.level, *lines(f)) for f in findings]
    if not sys.stdout.isatty():
        for level, what, do in styled:
            print(f"{level:7} {what}\n        {do}")
        print(verdict(name, findings))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for level, what, do in styled:
        console.print(Text.assemble((f"{level:7} ", _STYLE[level]), what, "\n        ", (do, "dim")))
    console.print(Text(verdict(name, findings)))


def _counts(findings: Sequence[Finding]) -> dict[str, int]:
    return {level: sum(f.level == level for f in findings) for level in _STYLE}
