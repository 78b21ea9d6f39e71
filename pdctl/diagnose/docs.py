"""The rules' manual, from their docstrings: one page, and one rule's page for `pdctl explain`."""

from __future__ import annotations

import inspect

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules import CATALOGUE

_PARTS = ("What it looks like:", "What else it could be:", "What to do:")


def paragraphs(rule: Rule) -> list[str]:
    """The page as paragraphs, each on one line; the first says what the rule finds."""
    text = inspect.cleandoc(rule.page)
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def page(rule: Rule) -> str:
    """One rule as Markdown."""
    lines = [f"## {rule.code}: {rule.title}", ""]
    needs = f" Needs: {', '.join(rule.needs)}." if rule.needs else ""
    lines += [f"Severity {rule.severity.word}.{needs}", ""]
    for text in paragraphs(rule):
        part = next((p for p in _PARTS if text.startswith(p)), "")
        body = text.removeprefix(part).strip()
        lines += [f"**{part.rstrip(':')}.** {body[:1].upper()}{body[1:]}" if part else text, ""]
    if rule.echo_of:
        lines += [f"Attached as an effect to: {', '.join(rule.echo_of)}, when one of them touches it.", ""]
    return "\n".join(lines)


def render() -> str:
    """docs/rules.md, whole."""
    head = [
        "# Rules of `pdctl diagnose`",
        "",
        "Generated from the rules themselves (`make docs`). `pdctl explain CODE` prints one of them.",
        "",
    ]
    table = ["| Code | Finds | Severity |", "| --- | --- | --- |"]
    table += [f"| [{r.code}](#{_anchor(r)}) | {r.title} | {r.severity.word} |" for r in CATALOGUE]
    return "\n".join([*head, *table, "", *(page(r) for r in CATALOGUE)]).rstrip() + "\n"


def _anchor(rule: Rule) -> str:
    return f"{rule.code}-{rule.title}".lower().replace(" ", "-").replace(",", "")
