"""Restart a cell's prefills and decodes together, so that no side keeps state of a life that is gone.

The order and what a failure means are states.py; what each stage does is steps.py.
Under client load nothing fails: new requests wait at the router from hold to resume, and so do streams that
outlast the drain.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pdctl.errors import ConfigError, DeadlineError, PdctlError
from pdctl.fleet.model import Cell
from pdctl.fleet.names import nearest
from pdctl.flows.changing import doing
from pdctl.flows.co_restart.foreign import ForeignSteps
from pdctl.flows.co_restart.report import CellReport, CoRestartReport
from pdctl.flows.co_restart.states import Event, Machine, Stage, advance, next_command
from pdctl.flows.co_restart.steps import Steps
from pdctl.flows.context import Context
from pdctl.flows.foreign import mixed

# Seconds for each step of taking a hold back.
BACK = 10.0
Progress = Callable[[str], None]


def run(
    ctx: Context,
    cell: str | None,
    progress: Progress,
    drain: float | None = None,
    wait: float | None = None,
) -> CoRestartReport:
    """Co-restart `cell`, or every cell in turn; a cell that fails stops the run.

    Requests get `drain` seconds to end by themselves; by default as long as is right for the fleet's router.
    An engine gets `wait` seconds to start and to load its model; by default what its kind is known to need.
    ConfigError for a cell that is not in the fleet file; everything else is in the report.
    """
    cells = list(ctx.fleet.cells.values()) if cell is None else [_cell(ctx, cell)]
    done: list[CellReport] = []
    for each in cells:
        report = _one(ctx, each, progress, drain, wait)
        done.append(report)
        if not report.done:
            break
    return CoRestartReport(tuple(done))


def _cell(ctx: Context, name: str) -> Cell:
    found = ctx.fleet.cells.get(name)
    if found is None:
        hint = nearest(name, ctx.fleet.cells)
        raise ConfigError("unknown_cell", f"There is no cell {name!r} in this fleet.", hint)
    return found


def _actions(steps: Steps) -> dict[Stage, Callable[[float], None]]:
    return {
        Stage.HOLD: steps.hold,
        Stage.DRAIN: steps.drain,
        Stage.STOP_DECODE: lambda seconds: steps.stop(steps.decodes),
        Stage.STOP_PREFILL: lambda seconds: steps.stop(steps.prefills),
        Stage.PROVE: steps.prove,
        Stage.START_PREFILL: lambda seconds: steps.start(steps.prefills, seconds),
        Stage.START_DECODE: lambda seconds: steps.start(steps.decodes, seconds),
        Stage.LINK: steps.link,
        Stage.CANARY: steps.canary,
        Stage.RESUME: steps.resume,
    }


def _acts(ctx: Context, steps: Steps) -> dict[Stage, Callable[[float], None]]:
    """Each stage as a step of the run: a run that lost the fleet's lock begins no other one."""

    def recorded(stage: Stage, act: Callable[[float], None]) -> Callable[[float], None]:
        def one(seconds: float) -> None:
            name = f"{steps.cell.name}/{stage.name.lower()}"
            with doing(ctx, name, "fleet", f"cell {steps.cell.name}: {stage}", changes=False):
                act(seconds)

        return one

    return {stage: recorded(stage, act) for stage, act in _actions(steps).items()}


def _attempt(machine: Machine, act: Callable[[float], None], deadline: float) -> Machine:
    """One stage under its deadline, and the machine after it."""
    try:
        act(deadline)
    except DeadlineError as error:
        return advance(machine, Event.EXPIRED, error.message)
    except PdctlError as error:
        return advance(machine, Event.FAILED, error.message)
    return advance(machine, Event.PASSED)


def _one(ctx: Context, cell: Cell, progress: Progress, drain: float | None, wait: float | None) -> CellReport:
    made = ForeignSteps if mixed(cell) else Steps
    steps = made(ctx, cell, alone=len(ctx.fleet.cells) == 1, drain=drain, wait=wait)
    actions = _acts(ctx, steps)
    machine = Machine()
    seconds: dict[str, float] = {}
    held_at = time.monotonic()
    out: float | None = None
    try:
        while not machine.final:
            stage = machine.stage
            begin = time.monotonic()
            try:
                progress(f"cell {cell.name}: {stage}")
                machine = _attempt(machine, actions[stage], steps.deadline(stage))
            finally:
                seconds[stage.name.lower()] = time.monotonic() - begin
            if stage is Stage.HOLD:
                held_at = time.monotonic()
            if machine.stage is Stage.DONE:
                out = time.monotonic() - held_at
    except KeyboardInterrupt:
        # Wherever it came, also between two stages: a hold that nobody ends would outlive the run.
        if not machine.final:
            machine = advance(machine, Event.INTERRUPTED, stopping=steps.stopping)
    finally:
        steps.let_go()
    if machine.stage is not Stage.DONE:
        why = f": {machine.reason}" if machine.reason else ""
        progress(f"cell {cell.name}: {machine.at} {machine.event}{why}")
    return _report(steps, machine, seconds, out)


def _taken_back(steps: Steps, machine: Machine) -> tuple[list[str], str]:
    """Nothing was stopped: what is true once hold and drain were taken back, and what to run next."""
    following = next_command(machine, steps.cell.name)
    try:
        return steps.take_back(BACK), following
    except PdctlError as error:
        what = f"What was held could not be opened again: {error.message} `pdctl resume` does it."
        return [what], "pdctl resume" if machine.event is Event.INTERRUPTED else following


def _report(steps: Steps, machine: Machine, seconds: dict[str, float], out: float | None) -> CellReport:
    order = [*steps.prefills, *steps.decodes]
    true_now = steps.truth(machine)
    following = next_command(machine, steps.cell.name, steps.routed, not steps.unknown)
    if machine.stage is Stage.UNTOUCHED:
        lines, following = _taken_back(steps, machine)
        true_now += lines
    if machine.stage is not Stage.DONE:
        true_now += steps.observe()
    return CellReport(
        cell=steps.cell.name,
        machine=machine,
        seconds=seconds,
        out_of_service_s=out,
        starts=tuple(steps.starts[e.name] for e in order if e.name in steps.starts),
        proof=tuple(steps.proof),
        canaries=tuple(steps.canaries),
        notes=tuple(steps.notes),
        true_now=tuple(true_now),
        next=following,
        routed=steps.routed,
        unknown=tuple(sorted(steps.unknown)),
        resumed=steps.carried.resumed,
        cut=len(steps.carried.cut),
    )
