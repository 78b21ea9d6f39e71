"""The starts and restarts of a deploy: nothing that is current is touched, one cell restarts together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pdctl.fleet.catalogue import known
from pdctl.fleet.model import Engine, Router
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.deploy.desired import DesiredUnit
from pdctl.flows.deploy.look import RUNS, HostState, States
from pdctl.flows.ready import start_failed, wait_ready
from pdctl.flows.waiting import until
from pdctl.plan.step import Step

QUICK = 5.0
CoRestart = Callable[[Context, str], None]


def removal_step(ctx: Context, state: HostState, name: str, group: str, wave: str) -> Step:
    """For a unit that is not wanted on this host."""

    def there() -> list[str]:
        return [f"{name} is not wanted on {state.name}"] if name in state.specs else []

    def remove() -> None:
        ctx.units(state.name).remove(name)
        for known_there in (state.specs, state.env, state.statuses):
            known_there.pop(name, None)

    id, what = f"{state.name}/remove/{name}", f"stop and remove {name}"
    return Step(id, state.name, what, there, remove, group=group, wave=wave)


def start_steps(
    ctx: Context, states: States, units: Sequence[DesiredUnit], group: str, wait: float
) -> list[Step]:
    """In start order; decodes wait until their prefills are ready."""
    steps: list[Step] = []
    for role in ("prefill", "decode", "both", "router"):
        mine = [u for u in units if u.unit.role == role]
        steps += [_start_step(ctx, states, u, group, f"start {role} {group}") for u in mine]
        new = [u for u in mine if states.difference(u)]
        if role == "prefill" and new:
            steps.append(ready_step(ctx, [u.unit for u in new], group, wait))
    return steps


def _start_step(ctx: Context, states: States, unit: DesiredUnit, group: str, wave: str) -> Step:
    # An orphan still serves, and starting its unit ends it: that is a restart to whoever is asked.
    old = states.runs_old(unit) or states.of(unit).state == "orphaned"

    def start() -> None:
        units = ctx.units(unit.host)
        status = units.restart(unit.name) if old else units.start(unit.name)
        if status.state not in RUNS:
            raise start_failed(ctx, unit.unit, status)
        states.hosts[unit.host].statuses[unit.name] = status
        states.forget(unit.unit)

    id, what = f"{unit.host}/start/{unit.name}", f"{'restart' if old else 'start'} {unit.name}"
    return Step(id, unit.host, what, lambda: states.difference(unit), start, group=group, wave=wave)


def ready_step(ctx: Context, units: Sequence[Engine | Router], group: str, wait: float) -> Step:
    names = ", ".join(u.name for u in units)
    return Step(
        f"ready/{names}",
        "fleet",
        f"wait until ready: {names}",
        lambda: (),
        lambda: wait_ready(ctx, units, wait),
        gate=True,
        group=group,
    )


def co_restart_step(
    ctx: Context,
    states: States,
    units: Sequence[DesiredUnit],
    cell: str,
    group: str,
    why: str,
    restart: CoRestart,
) -> Step:
    """`why` is a reason beside what the units themselves show."""
    reasons = [why] if why else []

    def check() -> list[str]:
        return [*reasons, *(line for u in units for line in states.difference(u))]

    def apply() -> None:
        try:
            restart(ctx, cell)
        finally:
            states.refresh({u.host for u in units})
        reasons.clear()

    return Step(f"co-restart/{cell}", "fleet", f"restart cell {cell} together", check, apply, group=group)


def timeout_step(ctx: Context, states: States, unit: DesiredUnit, group: str) -> Step:
    """Timeouts that can change while running are set by the admin verb; no restart is needed for them."""
    url = unit.unit.url

    def differences() -> dict[str, tuple[float, float]]:
        if not unit.timeouts or states.difference(unit):
            return {}  # it is about to be started with the new values
        document = states.document(unit.unit)
        running = {t["env"]: t["value"] for t in document.get("timeouts", {}).values()}
        return {
            env: (running[env], value)
            for env, value in unit.timeouts.items()
            if env in running and running[env] != value
        }

    def check() -> list[str]:
        return [f"{unit.name} {env}: {old:g} -> {new:g}" for env, (old, new) in differences().items()]

    def anew() -> list[str]:
        states.forget(unit.unit)
        return check()

    def apply() -> None:
        anew()
        body = {known()[env].name: new for env, (_, new) in differences().items()}
        if body:
            admin.post(ctx, url, "timeouts", body, timeout=QUICK)
            # An engine publishes its state a few times a second; only then can it be seen to hold.
            until(lambda: "; ".join(anew()), QUICK)

    id, what = f"{unit.host}/timeouts/{unit.name}", f"set timeouts of {unit.name} while it runs"
    return Step(id, unit.host, what, check, apply, group=group)
