"""Drills for people: what there is, and the scoreboard of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdctl.flows.drill.catalogue import DRILLS
from pdctl.flows.drill.points import FAULTS, Point
from pdctl.flows.drill.score import Board, Row
from pdctl.render.table import show_table


def show_list(armed: Sequence[Point], silent: Mapping[str, str]) -> None:
    """`silent` is engine -> why it could not be asked what is armed."""
    rows = [(d.name, ", ".join(d.codes), f"{d.within:g}", d.does) for d in DRILLS.values()]
    show_table(("drill", "found as", "within s", "what it does"), rows)
    print()
    show_table(("fault point", "on", "what it does"), [(n, r, d) for n, (r, d) in FAULTS.items()])
    print()
    points = [(p.engine, p.name, p.count or "until disarmed", f"{p.value:g}", p.hits) for p in armed]
    show_table(("engine", "armed", "count", "value s", "hits"), points)
    for name, why in silent.items():
        print(f"{name} cannot be asked: {why}")


def show_board(board: Board) -> None:
    for line in board.restored:
        print(f"Restored: {line}")
    for line in board.left_alone:
        print(f"Left alone: {line}")
    columns = ("drill", "detected as", "after s", "undone after s", "healthy requests", "verdict")
    show_table(columns, [_cells(row) for row in board.rows])
    for row in board.rows:
        if row.evidence:
            print(f"{row.name}: {row.evidence}")
        for line in row.wrong:
            print(f"{row.name}: {line}")
    played = [row for row in board.rows if not row.skipped]
    good = sum(row.ok for row in played)
    print(
        f"{good} of {len(played)} drills went as expected, {len(board.rows) - len(played)} were not played."
    )
    if board.stopped:
        print(f"Stopped before its end: {board.stopped}.")


def _cells(row: Row) -> tuple[object, ...]:
    if row.skipped:
        return row.name, None, None, None, None, f"not played: {row.skipped}"
    healthy = f"{row.answered} of {row.asked} answered" + ("" if row.spares else " (may fail)")
    undone = None if row.undone is None else f"{row.undone:g}"
    took = None if row.took is None else f"{row.took:g}"
    return row.name, row.detected or None, took, undone, healthy, "ok" if row.ok else "WRONG"
