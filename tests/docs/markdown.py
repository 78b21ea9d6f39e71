"""What every generated page is made of."""

from __future__ import annotations

from collections.abc import Sequence

NOTE = "<!-- Written by `python -m tests.docs --write`. Change the code, not this page. -->\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
