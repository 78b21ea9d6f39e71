"""The starts and restarts of a deploy: nothing that is current is touched, one cell restarts together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pdctl.errors import PdctlError
from pdctl.fleet.catalogue import known
from pdctl.fleet.model import Engine
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.desired import DesiredUnit
from pdctl.flows.http import call
from pdctl.flows.ready import start_failed, wait_ready
from pdctl.flows.waiting import until
from pdctl.plan.step import Step
from pdctl.units.spec import UnitStatus

RUNS = ("activating", "active")
QUICK = 5.0


class UnitStates:
    """Status of all units of a host in one call, kept until something was changed there."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._known: dict[str, dict[str, UnitStatus]] = {}

    def of_host(self, host: str) -> dict[str, UnitStatus]:
        if host not in self._known:
            self._known[host] = self._ctx.units(host).status()
        return self._known[host]

    def of(self, unit: DesiredUnit) -> UnitStatus:
        return self.of_host(unit.unit.host).get(unit.name, UnitStatus(unit.name, "missing"))

    def forget(self) -> None:
        self._known.clear()

    def runs_old(self, unit: DesiredUnit) -> bool:
        status = self.of(unit)
        return status.state in (*RUNS, "restarting") and status.inputs != unit.spec.inputs

    def difference(self, unit: DesiredUnit) -> list[str]:
        status = self.of(unit)
        if self.runs_old(unit):
            return [f"{unit.name} runs with other inputs than the fleet file gives it"]
        if status.state in RUNS:
            return []
        why = f" ({status.reason})" if status.reason and status.state != "missing" else ""
        return [f"{unit.name} is {'not there yet' if status.state == 'missing' else status.state}{why}"]


def removal_steps(ctx: Context, states: UnitStates, host: str, wanted: Sequence[str]) -> list[Step]:
    """Units that the fleet file no longer names."""

    def step(name: str) -> Step:
        def remove() -> None:
            ctx.units(host).remove(name)
            states.forget()

        def there() -> list[str]:
            return [f"{name} is not in the fleet file"] if name in states.of_host(host) else []

        return Step(f"{host}/remove/{name}", host, f"stop and remove {name}", there, remove)

    return [step(name) for name in sorted(states.of_host(host)) if name not in wanted]


def start_steps(
    ctx: Context,
    states: UnitStates,
    units: Sequence[DesiredUnit],
    restart: Callable[[Context, str], None],
    wait: float,
) -> list[Step]:
    """In start order, a gate behind each role; a cell with an outdated engine is restarted as a whole."""
    old = {u.unit.cell for u in units if isinstance(u.unit, Engine) and states.runs_old(u)}
    steps = [_co_restart_step(ctx, states, units, cell, restart) for cell in sorted(old)]
    for role in ("prefill", "decode", "both", "router"):
        group = [
            u
            for u in units
            if u.unit.role == role and not (isinstance(u.unit, Engine) and u.unit.cell in old)
        ]
        if not group:
            continue
        steps += [_start_step(ctx, states, u) for u in group]
        if role == "prefill" and any(states.difference(u) for u in group):
            steps.append(_gate(ctx, [u for u in group if states.difference(u)], wait))
    return steps


def _start_step(ctx: Context, states: UnitStates, unit: DesiredUnit) -> Step:
    # An orphan still serves, and starting its unit ends it: that is a restart to whoever is asked.
    old = states.runs_old(unit) or states.of(unit).state == "orphaned"

    def start() -> None:
        units = ctx.units(unit.unit.host)
        status = units.restart(unit.name) if old else units.start(unit.name)
        if status.state not in RUNS:
            raise start_failed(ctx, unit.unit, status)
        states.of_host(unit.unit.host)[unit.name] = status

    return Step(
        f"{unit.unit.host}/start/{unit.name}",
        unit.unit.host,
        f"{'restart' if old else 'start'} {unit.name}",
        lambda: states.difference(unit),
        start,
    )


def _gate(ctx: Context, units: Sequence[DesiredUnit], wait: float) -> Step:
    names = ", ".join(u.name for u in units)
    return Step(
        f"ready/{names}",
        "fleet",
        f"wait until ready: {names}",
        lambda: (),
        lambda: wait_ready(ctx, [u.unit for u in units], wait),
        gate=True,
    )


def _co_restart_step(
    ctx: Context,
    states: UnitStates,
    units: Sequence[DesiredUnit],
    cell: str,
    restart: Callable[[Context, str], None],
) -> Step:
    mine = [u for u in units if isinstance(u.unit, Engine) and u.unit.cell == cell]

    def check() -> list[str]:
        return [line for u in mine for line in states.difference(u)]

    def apply() -> None:
        restart(ctx, cell)
        states.forget()

    return Step(f"co-restart/{cell}", "fleet", f"restart cell {cell} together", check, apply)


def timeout_step(ctx: Context, states: UnitStates, unit: DesiredUnit) -> Step:
    """Timeouts that can change while running are set by the admin verb; no restart is needed for them."""
    url = unit.unit.url

    def differences() -> dict[str, tuple[float, float]]:
        if states.difference(unit):
            return {}  # it is about to be started with the new values
        try:
            _, state = call(ctx, "GET", f"{url}/v1/state", QUICK)
        except PdctlError:
            return {}
        running = {t["env"]: t["value"] for t in state.get("timeouts", {}).values()}
        return {
            env: (running[env], value)
            for env, value in unit.timeouts.items()
            if env in running and running[env] != value
        }

    def check() -> list[str]:
        return [f"{unit.name} {env}: {old:g} -> {new:g}" for env, (old, new) in differences().items()]

    def apply() -> None:
        body = {known()[env].name: new for env, (_, new) in differences().items()}
        if body:
            admin.post(ctx, url, "timeouts", body, timeout=QUICK)
            # An engine publishes its state a few times a second; only then can it be seen to hold.
            until(lambda: "; ".join(check()), QUICK)

    return Step(
        f"{unit.unit.host}/timeouts/{unit.name}",
        unit.unit.host,
        f"set timeouts of {unit.name} while it runs",
        check,
        apply,
    )
