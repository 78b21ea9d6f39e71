"""Put one mix of the two profiles on the fleet: env files, live values, and a restart only where it needs
one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pdctl.errors import DeadlineError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Engine, Router
from pdctl.flows import admin
from pdctl.flows.bisect.differences import Compared, Env, Subject, is_live
from pdctl.flows.bisect.recovery import (
    Kept,
    Record,
    Refused,
    Restart,
    group_of,
    live_values,
    pids,
    put_live,
    write,
)
from pdctl.flows.bisect.search import SERVE, START, Mix
from pdctl.flows.changing import doing
from pdctl.flows.co_restart import run as co_restart
from pdctl.flows.co_restart.states import Stage
from pdctl.flows.context import Context
from pdctl.flows.ready import wait_ready
from pdctl.flows.recovery.envs import change_env, read_env

# How long a unit that was not restarted may take to say that it is ready.
SETTLED = 30.0


@dataclass(frozen=True)
class Put:
    """`restarts` counts cells and the router; `refused` says why the mix did not come up, None when it
    did."""

    restarts: int = 0
    refused: Refused | None = None


def starter(wait: float) -> Restart:
    """The real way to start a cell or the router anew, `wait` seconds for each engine."""

    def restart(ctx: Context, group: str) -> Refused | None:
        if group in ctx.fleet.cells:
            return _co_restart(ctx, group, wait)
        router = ctx.fleet.router
        try:
            with doing(ctx, f"restart/{group}", router.host, f"restart {group}"):
                ctx.units_of(router).restart(router.name)
            wait_ready(ctx, [router], wait)
        except PdctlError as error:
            _let_through(error)
            return Refused(START, f"{group}: {error.message}")
        return None

    return restart


def _co_restart(ctx: Context, cell: str, wait: float) -> Refused | None:
    report = co_restart.run(ctx, cell, ctx.say, wait=wait)
    if report.done:
        return None
    last = report.cells[-1]
    machine = last.machine
    if report.exit is Exit.INTERRUPTED:
        raise PdctlError("interrupted", "Interrupted.", exit=Exit.INTERRUPTED)
    if machine.stage is Stage.UNTOUCHED or machine.at is None:
        hint = "Run `pdctl diagnose` for the cause."
        said = f"Cell {cell} could not be restarted: {machine.reason}"
        raise PdctlError("co_restart_failed", said, hint, exit=report.exit, details=last.true_now)
    at = SERVE if machine.at in (Stage.LINK, Stage.CANARY, Stage.RESUME) else START
    return Refused(at, f"{machine.at}: {machine.reason or machine.event}")


def _let_through(error: PdctlError) -> None:
    """An interrupt and a lost lock say nothing about a mix."""
    if error.exit in (Exit.INTERRUPTED, Exit.LOCKED):
        raise error


class Trials:
    """The fleet under bisect. Made before anything is changed; `put` writes the recovery record first."""

    def __init__(self, ctx: Context, compared: Compared, restart: Restart) -> None:
        self._ctx, self._compared, self._restart = ctx, compared, restart
        self._subjects = compared.subjects
        self._files = {s.name: read_env(ctx, s.unit) or {} for s in self._subjects}
        self._was: dict[str, Env] = {s.name: self._present(s) for s in self._subjects}
        self._running = {s.name: self._fixed(s, self._was[s.name]) for s in self._subjects}
        self._broken: set[str] = set()
        self._record = Record({s.name: self._kept(s) for s in self._subjects})
        self._record.live = {s.name: self._in_force(s) for s in self._subjects}

    def _present(self, subject: Subject) -> Env:
        return {name: self._files[subject.name].get(name) for name in subject.good}

    @staticmethod
    def _fixed(subject: Subject, env: Env) -> Env:
        """What is read only at a start."""
        return {name: text for name, text in env.items() if not is_live(subject.unit, name)}

    def _kept(self, subject: Subject) -> dict[str, Kept]:
        was, good, bad = self._was[subject.name], subject.good, subject.bad
        return {n: Kept(was[n], [good[n], bad[n]]) for n in good}

    def _in_force(self, subject: Subject) -> dict[str, float]:
        """PdctlError when the running unit does not have a value that is to be set on it."""
        wanted = live_values(subject.unit, subject.good)
        seen = admin.timeouts(self._ctx, subject.unit.url) if wanted else {}
        reached: Env = {d.env: None for d in self._compared.differences if subject.name in d.units}
        if unknown := sorted(live_values(subject.unit, reached).keys() - seen.keys()):
            what = f"{subject.name} runs and does not know {', '.join(unknown)}."
            raise PdctlError("unknown_timeout", what, "Run `pdctl deploy` first.", exit=Exit.FINDINGS)
        return {name: seen[name] for name in wanted if name in seen}

    def _wanted(self, subject: Subject, mix: Mix | None) -> Env:
        return self._was[subject.name] if mix is None else subject.mixed(self._compared.differences, mix)

    def restarts(self, before: Mix | None, after: Mix | None) -> int:
        """How many restarts lie between two mixes; None is the fleet as it was."""

        def starts(mix: Mix | None) -> dict[str, list[Env]]:
            found: dict[str, list[Env]] = {}
            for s in self._subjects:
                found.setdefault(group_of(s.unit), []).append(self._fixed(s, self._wanted(s, mix)))
            return found

        one, other = starts(before), starts(after)
        return sum(one[group] != other[group] for group in one)

    def needs(self, mix: Mix) -> list[str]:
        """The groups that `put` would restart for `mix`."""
        groups = [
            group_of(s.unit)
            for s in self._subjects
            if self._fixed(s, self._wanted(s, mix)) != self._running[s.name]
        ]
        return list(dict.fromkeys([*groups, *sorted(self._broken)]))

    def put(self, mix: Mix) -> Put:
        """Until the fleet runs with `mix` and is ready, or has refused it."""
        groups = self.needs(mix)
        self._record.started |= {group: {} for group in groups}
        self._record.at = time.time()
        write(self._ctx.fleet, self._record)
        wanted = {s.name: self._wanted(s, mix) for s in self._subjects}
        for subject in self._subjects:
            self._write(subject, wanted[subject.name])
        for done, group in enumerate(groups):
            if refused := self._anew(group, wanted):
                return Put(done + 1, refused)
        return Put(len(groups), self._settle(wanted, groups))

    def _write(self, subject: Subject, wanted: Env) -> None:
        there = self._files[subject.name]
        new = {n: v for n, v in wanted.items() if there.get(n) != v}
        if new:
            change_env(self._ctx, subject.unit, new)
            self._files[subject.name] = {n: v for n, v in {**there, **new}.items() if v is not None}

    def _anew(self, group: str, wanted: dict[str, Env]) -> Refused | None:
        mine = [s for s in self._subjects if group_of(s.unit) == group]
        self._broken.add(group)
        refused = self._restart(self._ctx, group)
        for subject in mine:
            self._running[subject.name] = self._fixed(subject, wanted[subject.name])
        if refused:
            return refused
        self._broken.discard(group)
        units: list[Engine | Router] = [s.unit for s in mine]
        if all(self._running[s.name] == self._fixed(s, self._was[s.name]) for s in mine):
            del self._record.started[group]  # it runs as it did before, so there is nothing to restart later
        else:
            self._record.started[group] = pids(self._ctx, units)
        write(self._ctx.fleet, self._record)
        return None

    def _settle(self, wanted: dict[str, Env], restarted: Sequence[str]) -> Refused | None:
        """Live values on what was not restarted; then all of it must be ready."""
        for subject in self._subjects:
            if group_of(subject.unit) not in restarted:
                put_live(self._ctx, subject.unit, live_values(subject.unit, wanted[subject.name]))
        try:
            wait_ready(self._ctx, [s.unit for s in self._subjects], SETTLED)
        except DeadlineError as error:
            return Refused(SERVE, error.message)
        return None
