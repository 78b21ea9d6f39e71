"""Dwell after restarts: the first transfer over a cold path, and those of a light load behind it."""

from __future__ import annotations

from dataclasses import replace

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.flows.changing import doing
from pdctl.flows.co_restart import run as co_restart
from pdctl.flows.context import Context
from pdctl.flows.ready import wait_ready
from pdctl.flows.tune.measure import Ended, Phase, Plan, Watcher, measure_one

START = 600.0


def measure_restarts(ctx: Context, count: int, one_sided: bool, plan: Plan) -> list[Phase]:
    """`count` restarts of all cells, of their decodes alone with `one_sided`, the load of `plan` behind each.

    Two phases: `restarted` (the load's transfers) and `cold` (each prefill's first transfer of all, which a
    co-restart's canary makes). PdctlError when a restart fails; nothing further is done then.
    """
    behind: list[Phase] = []
    cold: list[float] = []
    for number in range(1, count + 1):
        kind = "one side" if one_sided else "both sides"
        ctx.say(f"restart {number} of {count}: {kind} of every cell")
        watcher = Watcher(ctx)
        watcher.begin()
        if one_sided:
            _decodes(ctx)
        else:
            _together(ctx)
        watcher.look()  # before the load: a prefill keeps its last dwells only
        phase = measure_one(ctx, replace(plan, name="restarted"))
        watcher.look()
        cold += _first(watcher.ended())
        behind.append(phase)
    return [
        Phase(
            name="restarted",
            seconds=sum(p.seconds for p in behind),
            dwells=tuple(d for p in behind for d in p.dwells),
            worst={how: sum(p.worst.get(how, 0) for p in behind) for p in behind for how in p.worst},
            waiting=max(p.waiting for p in behind),
            shots=tuple(s for p in behind for s in p.shots),
            waited=max(p.waited for p in behind),
        ),
        Phase("cold", 0.0, tuple(cold), {}, 0, ()),
    ]


def _first(ended: list[Ended]) -> list[float]:
    """Of each prefill the first transfer that ended well."""
    first: dict[str, float] = {}
    for one in ended:
        if one.how == "done":
            first.setdefault(one.prefill, one.seconds)
    return list(first.values())


def _together(ctx: Context) -> None:
    report = co_restart.run(ctx, None, ctx.say)
    if not report.ok:
        last = report.cells[-1]
        raise PdctlError(
            "restart_failed",
            f"The co-restart of cell {last.cell} ended at {last.machine.at}: {last.machine.reason}",
            f"Run `{last.next}`." if last.next else "",
            exit=Exit.FINDINGS,
        )


def _decodes(ctx: Context) -> None:
    decodes = [e for e in ctx.fleet.engines() if e.role == "decode"]
    for engine in decodes:
        with doing(ctx, f"restart/{engine.name}", engine.host, f"restart {engine.name}"):
            ctx.units_of(engine).restart(engine.name)
    wait_ready(ctx, decodes, START)
