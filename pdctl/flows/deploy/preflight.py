"""Preflight of a deploy: what `pdctl check` asks, of what will change, before anything is switched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Fleet
from pdctl.flows.check.hosts import launch
from pdctl.flows.check.report import CheckReport, Level, Line
from pdctl.flows.check.run import check
from pdctl.flows.context import Context
from pdctl.flows.deploy.group import Group
from pdctl.flows.deploy.look import States
from pdctl.plan.step import Plan, Step

PREFLIGHT = "preflight"
# What engines need of a host and a router does not.
_ENGINES = ("shm", "memlock", "model")


class Preflight:
    """Of `groups`, with the Python they will be started with: looked at once, judged one by one."""

    def __init__(self, ctx: Context, states: States, groups: Sequence[Group]) -> None:
        self._ctx, self._states, self._groups = ctx, states, groups

    def steps(self) -> list[Step]:
        """Gates, because they change nothing. PdctlError of the preflight of a group that must not go on."""
        return [
            Step(
                f"{PREFLIGHT}/{group.key}",
                "fleet",
                f"preflight of {group.key} on {', '.join(group.hosts)}",
                lambda: (),
                partial(self._judge, group),
                gate=True,
                group=PREFLIGHT,
            )
            for group in self._groups
        ]

    def _judge(self, group: Group) -> None:
        lines = [line for line in self._report.lines if self._concerns(group, line)]
        for line in lines:
            if line.level is Level.WARN:
                self._ctx.say(f"  doubtful: {line.subject}, {line.check}: {line.found}; to mend: {line.fix}")
        failed = [line for line in lines if line.level is Level.FAIL]
        if failed:
            raise _stopped(failed, self._report)

    def _concerns(self, group: Group, line: Line) -> bool:
        """A line is about units (`h1 -> prefill-0` about the one it leads to), else about hosts."""
        words = set(re.split(" <?-> ", line.subject))
        units = words & {unit.name for unit in self._ctx.fleet.units()}
        if units:
            return bool(units & {unit.name for unit in group.units})
        return words <= set(group.hosts) and not (group.kind == "router" and line.check in _ENGINES)

    @cached_property
    def _report(self) -> CheckReport:
        units = [unit for group in self._groups for unit in group.units]
        return check(
            replace(self._ctx, fleet=self._part()),
            transfer=None,
            given={u.name: launch(u.spec) for u in units if u.unit.kind == "bundled"},
            ending=self._ending(),
        )

    def _part(self) -> Fleet:
        """The fleet with these groups alone; the router's host stays, because it must reach every engine."""
        fleet = self._ctx.fleet
        names = {fleet.router.host, *(host for group in self._groups for host in group.hosts)}
        cells = {group.name for group in self._groups if group.kind == "cell"}
        return replace(
            fleet,
            cells={name: cell for name, cell in fleet.cells.items() if name in cells},
            hosts={name: host for name, host in fleet.hosts.items() if name in names},
        )

    def _ending(self) -> set[str]:
        """Installed units of these groups: those that run are stopped before the wanted ones are started."""
        cells = list(self._ctx.fleet.cells)
        specs = [found for state in self._states.hosts.values() for found in state.specs.items()]
        return {name for name, spec in specs if any(group.has(spec, cells) for group in self._groups)}


def wants_check(group: Group, plan: Plan) -> bool:
    """Whether anything of `group` will be changed; a deploy that only proves what serves checks nothing."""
    return bool(group.units) and any(not p.step.gate for p in plan.pending)


def _stopped(failed: Sequence[Line], report: CheckReport) -> PdctlError:
    first = failed[0]
    away = all(line.subject in report.unreachable for line in failed)
    more = [f"{li.subject}, {li.check}: {li.found}; wanted: {li.wanted}; fix: {li.fix}" for li in failed[1:]]
    return PdctlError(
        "preflight",
        f"Preflight: {first.subject}, {first.check}: {first.found}; nothing of it was switched.",
        f"{first.fix}. `pdctl check` shows all of it, `--no-check` deploys all the same.",
        exit=Exit.UNREACHABLE if away else Exit.FINDINGS,
        details=[f"wanted: {first.wanted}", *more],
    )
