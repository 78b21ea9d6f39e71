"""pdctl restart"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import LockWait, Yes, confirm, session
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.fleet.model import Cell, Engine, Router
from pdctl.fleet.names import nearest
from pdctl.flows.co_restart.states import LOAD
from pdctl.flows.context import Context
from pdctl.flows.restart import co_restart_cell, restart_unit
from pdctl.render.co_restart import show
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="A unit; with --co a cell (default: the only one).")
    ] = None,
    co: Annotated[
        bool, typer.Option("--co", help="Hold admissions and restart the whole cell in order.")
    ] = False,
    yes: Yes = False,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Seconds for an engine to start and to load its model "
            "(default 600; with --co an hour for engines of another kind).",
            show_default=False,
        ),
    ] = None,
    drain: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="With --co: seconds that requests get to end before they are paused "
            "(default 10; where the router does not resume them, the engines' drain timeout).",
            show_default=False,
        ),
    ] = None,
    lock_wait: LockWait = 0.0,
) -> Exit:
    """Restart one unit alone (says what that risks), or with --co a cell's engines together."""
    s = session(ctx)
    with s.context() as context:
        if co:
            cell = _cell(context, name)
            confirm(f"{_together_means(context, cell)} Go on?", yes)
            return _together(context, cell, (drain, wait), s.json, lock_wait)
        if name is None:
            raise ConfigError("no_unit", "Name the unit to restart.", "Or restart a whole cell with --co.")
        if name in context.fleet.cells and name not in (u.name for u in context.fleet.units()):
            raise ConfigError("cell_alone", f"{name} is a cell.", f"Run `pdctl restart --co {name}`.")
        unit = context.fleet.unit(name)
        confirm(f"{risk(context, unit)} Restart {unit.name} alone?", yes)
        return _alone(context, unit, LOAD if wait is None else wait, s.json, lock_wait)


def _together_means(context: Context, cell: Cell) -> str:
    names = ", ".join(e.name for e in cell.engines)
    where = "wait at the router" if len(context.fleet.cells) == 1 else "go to other cells"
    return f"This will restart cell {cell.name} together ({names}); new requests {where} meanwhile."


def risk(context: Context, unit: Engine | Router) -> str:
    """What restarting this unit alone does to requests and to its peers."""
    if isinstance(unit, Router):
        return "Every request that the router carries fails; engines go on."
    cell = context.fleet.cells[unit.cell]
    peers = cell.decodes if unit.role == "prefill" else cell.prefills
    names = ", ".join(p.name for p in peers) or "no peer"
    lost = "go on elsewhere or after it where the router resumes them, else fail"
    return (
        f"Requests on {unit.name} {lost}, and {names} must drop what it holds of {unit.name}'s old life; "
        f"peers that keep it stay wedged until `pdctl restart --co {unit.cell}`."
    )


def _cell(context: Context, name: str | None) -> Cell:
    cells = context.fleet.cells
    if name is None:
        if len(cells) != 1:
            raise ConfigError("which_cell", "Name the cell to restart.", f"Cells: {', '.join(cells)}.")
        return next(iter(cells.values()))
    if name not in cells:
        raise ConfigError("unknown_cell", f"There is no cell {name!r}.", nearest(name, cells))
    return cells[name]


def _together(
    context: Context,
    cell: Cell,
    seconds: tuple[float | None, float | None],
    as_json: bool,
    lock_wait: float,
) -> Exit:
    """`seconds` to drain and to wait for each engine."""
    report = co_restart_cell(context, cell, *seconds, lock_wait=lock_wait)
    if as_json:
        show_json(report.document())
    else:
        show(report)
    return report.exit


def _alone(context: Context, unit: Engine | Router, wait: float, as_json: bool, lock_wait: float) -> Exit:
    restart_unit(context, unit, wait, lock_wait)
    if as_json:
        show_json({"schema": 1, "restarted": unit.name})
    else:
        print(f"{unit.name} is ready")
    return Exit.OK
