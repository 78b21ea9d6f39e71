"""Tables and JSON on stdout: rich on a terminal, aligned plain columns elsewhere."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence

# Columns that a long column must keep to be worth folding.
_FOLD = 20


def show_json(document: object) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Rows of text; None is a dash."""
    cells = [["-" if c is None else str(c) for c in row] for row in rows]
    if sys.stdout.isatty():
        _rich(columns, cells, title)
        return
    if title:
        print(title)
    widths = [max(len(r[i]) for r in [list(columns), *cells]) for i in range(len(columns))]
    for row in [[c.upper() for c in columns], *cells]:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


def _rich(columns: Sequence[str], cells: list[list[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = [max(len(r[i]) for r in [list(columns), *cells]) for i in range(len(columns))]
    # One long column folds well; many short ones folded letter by letter cannot be read.
    if sum(widths) - max(widths) + 2 * len(widths) + _FOLD > console.width:
        _stacked(columns, cells, title, console.width)
        return
    table = Table(box=box.SIMPLE, title=title or None, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*(Text(c) for c in row))
    console.print(table)


def _stacked(columns: Sequence[str], cells: list[list[str]], title: str, width: int) -> None:
    """A paragraph a row, for a terminal that is too narrow for the table."""
    if title:
        print(title)
    for row in cells:
        said = [f"{c} {text}" for c, text in zip(columns[1:], row[1:], strict=True) if text != "-"]
        text = ", ".join([row[0], *said])
        print(textwrap.fill(text, width, subsequent_indent="    ", break_on_hyphens=False))
