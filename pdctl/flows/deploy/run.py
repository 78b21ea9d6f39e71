"""Carry a planned deploy out: hosts first, then cell after cell; what fails its gate is put back.

The unit is the cell. A host that cannot be installed to keeps its cells as they are and no others, and so
does a preflight that fails. A cell that fails its gate goes back to what was recorded as serving, and cells
that serve are then left alone: what one cell has just failed with is not given to the next.
"""

from __future__ import annotations

from typing import Any

from pdctl.errors import LockedError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.profile import plain_env
from pdctl.fleet.secret import is_secret
from pdctl.flows.deploy import places
from pdctl.flows.deploy.back import NothingBefore, last_good, put_back
from pdctl.flows.deploy.group import Group
from pdctl.flows.deploy.planning import INSTALL, PREFLIGHT, PRUNE, SUPERVISOR, SWITCH, Deploy, why_not
from pdctl.flows.deploy.release import current_step
from pdctl.flows.deploy.result import GroupResult, HostResult, Outcome, State
from pdctl.flows.deploy.scope import words_of
from pdctl.plan.run import run_steps
from pdctl.plan.step import make_plan
from pdctl.remote.journal import Journal

# Variables and arguments that units were given, each kind once, without secrets: `profile check` says what
# differs from it.
Given = list[dict[str, Any]]

AGAIN = "Correct what failed, then run `pdctl deploy` again; `pdctl diagnose` looks at what serves now."
_WELL = (State.SAME, State.DONE)


def _values(deploy: Deploy) -> Given:
    """None of a rollback: a record does not say which of its values are secrets."""
    if deploy.verb != "deploy":
        return []
    made: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for unit in (u for group in deploy.groups for u in group.units):
        files = plain_env(deploy.ctx.fleet, unit.unit)  # the env file has pdctl's own beside these
        given = {n: t for n, t in unit.env.items() if n in files} | unit.unit.arguments
        plain = {n: t for n, t in given.items() if n not in unit.secret and not is_secret(n, t)}
        made.setdefault(tuple(sorted(plain.items())), []).append(unit.name)
    return [{"units": names, "values": dict(values)} for values, names in made.items()]


def apply_deploy(deploy: Deploy, journal: Journal) -> Outcome:
    """Everything that is planned. DeployFailed, with the outcome, when not all of it could be done."""
    hooks = deploy.hooks
    if not deploy.plan.pending:
        outcome = Rollout(deploy, journal).all()
        outcome.check()
        return outcome
    fleet = deploy.ctx.fleet
    with hooks.open(deploy.plan.document()):
        hooks.before(deploy.verb)
        ended = "interrupted"
        places.begun(fleet, journal)
        try:
            outcome = Rollout(deploy, journal).all()
            ended = "done" if outcome.exit is Exit.OK else "failed"
            if ended == "done":
                places.ended(fleet, journal)
                journal.note("deployment", id=deploy.ways.author.id, values=_values(deploy))
        finally:
            note = hooks.after(deploy.verb, ended)
    outcome.notes += [note] if note else []
    outcome.check()
    return outcome


class Rollout:
    """One deploy under way."""

    def __init__(self, deploy: Deploy, journal: Journal) -> None:
        self._deploy, self._journal = deploy, journal
        self._ctx, self._states = deploy.ctx, deploy.states
        self._broken = dict(deploy.broken)
        self._stopped: dict[str, PdctlError] = {}
        self._results: dict[str, GroupResult] = {}
        self._notes: list[str] = list(deploy.notes)

    def all(self) -> Outcome:
        self._on_hosts(INSTALL)
        self._preflight()
        self._on_hosts(SWITCH)
        for group in self._deploy.groups:
            self._results[group.key] = self._group(group)
        if any(r.state not in _WELL for r in self._results.values()):
            self._point_back()
        if not any(r.state in (State.BACK, State.FAILED) for r in self._results.values()):
            self._on_hosts(PRUNE)
        if all(r.state in _WELL for r in self._results.values()):
            self._supervisor()
        return Outcome(list(self._results.values()), self._hosts(), self._notes)

    def _on_hosts(self, phase: str) -> None:
        """A phase on those hosts that still have something to do with it; who fails is out from then on."""
        hosts = {h for g in self._deploy.groups if self._may(g) for h in g.hosts}
        pending = [p for p in self._deploy.plan.of(phase) if p.step.host in hosts]
        for host, error in run_steps(pending, self._journal, self._ctx.say).items():
            _let_through(error)
            if phase == PRUNE:
                self._notes.append(f"{host}: old releases were not removed: {error.message}")
            else:
                self._broken[host] = error

    def _supervisor(self) -> None:
        """What looks after the cells; when it cannot be had they serve on, and the deploy has failed."""
        host = self._ctx.fleet.control
        for error in run_steps(self._deploy.plan.of(SUPERVISOR), self._journal, self._ctx.say).values():
            _let_through(error)
            failed = GroupResult(SUPERVISOR, (host,), State.FAILED, error.message, "", error)
            self._results[SUPERVISOR] = failed

    def _may(self, group: Group) -> bool:
        """Whether nothing known keeps it from being deployed; the router goes with some cell, not alone."""
        if group.key in self._stopped or why_not(self._ctx, group, self._broken) is not None:
            return False
        cells = [g for g in self._deploy.groups if g.kind == "cell"]
        return group.kind != "router" or not cells or any(map(self._may, cells))

    def _preflight(self) -> None:
        """Group after group, since they share hosts; who fails is stopped and the others go on."""
        for pending in self._deploy.plan.of(PREFLIGHT):
            key = pending.step.id.partition("/")[2]
            group = next(g for g in self._deploy.groups if g.key == key)
            if not self._may(group):
                continue
            for error in run_steps([pending], self._journal, self._ctx.say).values():
                _let_through(error)
                self._ctx.say(f"{key}: {error.message}")
                self._stopped[key] = error

    def _group(self, group: Group) -> GroupResult:
        def result(state: State, why: str = "", error: PdctlError | None = None) -> GroupResult:
            return GroupResult(group.key, group.hosts, state, why, self._serves(group), error)

        blocked = why_not(self._ctx, group, self._broken)
        if blocked is not None:
            host, error = blocked
            return result(State.BLOCKED, f"{host}: {error.message}", error)
        if group.key in self._stopped:
            error = self._stopped[group.key]
            return result(State.STOPPED, error.message, error)
        pending = self._deploy.plan.of(group.key)
        if not pending:
            return result(State.SAME)
        if why := self._why_kept(group):
            return result(State.KEPT, why)
        failed = run_steps(pending, self._journal, self._ctx.say)
        if not failed:
            return result(State.DONE)
        error = next(iter(failed.values()))
        _let_through(error)
        self._ctx.say(f"{group.key}: {error.message}")
        return self._back(group, error)

    def _why_kept(self, group: Group) -> str:
        """Why `group` is not touched after what others came to; empty when it is."""
        bad = [r for r in self._results.values() if r.state not in _WELL]
        runs = any(self._states.hosts[u.host].runs(u.name) for u in group.units)
        failed = [r.group for r in bad if r.state in (State.BACK, State.FAILED)]
        if group.kind == "cell":
            return f"{failed[0]} failed" if failed and runs else ""
        if group.kind == "left":
            return f"{bad[0].group} is not deployed" if bad else ""
        cells = [r for r in self._results.values() if r.group.startswith("cell ")]
        if cells and not any(r.state in _WELL for r in cells):
            return f"{failed[0]} failed" if failed and runs else "no cell serves what was deployed"
        if not runs:
            return ""
        if behind := [r.group for r in bad if self._names_others(group, r.group)]:
            return f"it must go on knowing {behind[0]} as it is"
        moved = [r for r in cells if r.state is State.DONE and self._names_others(group, r.group)]
        return f"{failed[0]} failed" if failed and not moved else ""

    def _names_others(self, router: Group, key: str) -> bool:
        """Whether the wanted router knows the cell `key` otherwise than the one that is installed."""
        new = router.units[0].spec
        old = self._states.hosts[router.units[0].host].specs.get(new.name)
        cell = key.partition(" ")[2]
        return words_of(old, cell) != words_of(new, cell)

    def _back(self, group: Group, error: PdctlError) -> GroupResult:
        states, ways = self._states, self._deploy.ways
        result = GroupResult(group.key, group.hosts, State.FAILED, "", "", error)
        try:
            result.serves, result.now = put_back(self._ctx, states, group, ways, self._journal)
            result.state, result.why, result.next = State.BACK, error.message, AGAIN
        except NothingBefore as nothing:
            result.why = nothing.message
        except PdctlError as other:
            _let_through(other)
            result.why = f"It could not be put back either: {other.message}"
            result.now, result.next = other.details, other.hint
        if group.kind == "router" and result.state is State.BACK:
            self._cells_back(group, error)
        return result

    def _cells_back(self, router: Group, error: PdctlError) -> None:
        """Cells that only the new router knows as they are now go back with it."""
        for group in self._deploy.groups:
            done = self._results.get(group.key)
            if not done or done.state is not State.DONE or group.kind != "cell":
                continue
            if self._names_others(router, group.key):
                self._results[group.key] = self._back(group, error)

    def _point_back(self) -> None:
        """`current` follows what serves, where nothing of the new release does."""
        steps = []
        for name, state in self._states.hosts.items():
            units = state.newest["units"].values() if state.newest else ()
            used = [e["release"] for e in units if e["release"] in state.installed.releases]
            if used and state.installed.current not in used and name not in self._broken:
                steps.append(current_step(state, used[0], SWITCH, "back"))
        failed = run_steps(make_plan(steps).pending, self._journal, self._ctx.say)
        self._notes += [
            f"{h}: current still names what does not serve: {e.message}" for h, e in failed.items()
        ]

    def _serves(self, group: Group) -> str:
        good = last_good(self._states)
        names = list(self._ctx.fleet.cells)
        there = good is not None and any(group.recorded(e, names) for _, e in good.units())
        return good.id if good is not None and there else ""

    def _hosts(self) -> list[HostResult]:
        rows = []
        for name in self._ctx.fleet.hosts:
            if name not in self._states.hosts and name not in self._broken:
                continue  # out of scope, and so not asked
            error = self._broken.get(name)
            state = self._states.hosts.get(name)
            current = state.installed.current or "" if state else ""
            word = "not reached" if state is None else "failed" if error else "ok"
            rows.append(HostResult(name, word, current, error.message if error else ""))
        return rows


def _let_through(error: PdctlError) -> None:
    """Ctrl-C and a lost lock are no verdict on a cell: nothing more is done after them."""
    if isinstance(error, LockedError) or error.exit is Exit.INTERRUPTED:
        raise error
