"""A co-restart for people: stages with their seconds, starts, canaries; or what is true and what next."""

from __future__ import annotations

from pdctl.flows.co_restart.report import CellReport, CoRestartReport
from pdctl.render.table import show_table


def show(report: CoRestartReport) -> None:
    for cell in report.cells:
        _cell(cell)


def _cell(cell: CellReport) -> None:
    out = cell.out_of_service_s
    if cell.ok and out is not None:
        print(f"Cell {cell.cell} restarted together; out of service {out:.1f} s (hold to resume).")
    elif cell.done:
        names = ", ".join(cell.unknown)
        why = f"the router does not know {names}" if cell.routed else "no router runs, so nothing is served"
        print(f"Cell {cell.cell} restarted together; {why}.")
    else:
        at = cell.machine.at.value if cell.machine.at else ""
        print(f"Cell {cell.cell} not restarted: {at}: {cell.machine.event}. {cell.machine.reason}".rstrip())
    show_table(
        ("stage", "seconds"), [(name.replace("_", " "), f"{s:.1f}") for name, s in cell.seconds.items()]
    )
    if cell.starts:
        rows = [
            (
                s.engine,
                f"{s.answered_s:.1f}",
                "-" if s.ready_s is None else f"{s.ready_s:.1f}",
                s.was,
                s.incarnation,
            )
            for s in cell.starts
        ]
        show_table(("engine", "answered s", "ready s", "old life", "new life"), rows)
    for line in (*cell.proof, *cell.notes):
        print(f"  {line}")
    for c in cell.canaries:
        print(
            f"  canary {c.size} {c.prefill} -> {c.decode}: {c.problem or repr(c.text[:48])} {c.seconds:.2f} s"
        )
    if not cell.ok:
        print("True now:")
        for line in cell.true_now:
            print(f"  {line}")
        if cell.next:
            print(f"Next: {cell.next}")
