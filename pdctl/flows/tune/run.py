"""tune-timeout: measure dwell, propose a value, see the watchdog fire, apply; old values on any way out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pdctl.fleet.chain import IDLE, INFLIGHT
from pdctl.fleet.model import Engine, Fleet
from pdctl.fleet.profile import load_profile
from pdctl.flows.context import Context
from pdctl.flows.drill.points import need_drill
from pdctl.flows.foreign import is_foreign
from pdctl.flows.load.plan import Shape
from pdctl.flows.recovery.record import Fault, Record, write
from pdctl.flows.recovery.restore import restore
from pdctl.flows.recovery.timeouts import add_live
from pdctl.flows.serving import need_serving
from pdctl.flows.tune.apply import Change, apply, need_in_force, profile_name, vouch
from pdctl.flows.tune.files import note_deployment
from pdctl.flows.tune.foreign import run as foreign
from pdctl.flows.tune.measure import Phase, measure, plans
from pdctl.flows.tune.proof import FAULT, Proof, prove
from pdctl.flows.tune.proposal import Proposal, chain, propose, reasons
from pdctl.flows.tune.report import Options, TuneReport, kept
from pdctl.flows.tune.restarts import measure_restarts
from pdctl.flows.tune.stopped import to_its_end

_TEST_LEAST = 3.0


def run(ctx: Context, options: Options) -> TuneReport:
    """What is found is in the report.

    ConfigError when a drill is asked for and the fleet takes none, UnreachableError or PdctlError when the
    fleet does not serve, PdctlError when there is nothing in force to verify. The operator is asked before
    anything is sent.
    """
    fleet = ctx.fleet
    restored = restore(ctx)
    for line in (*restored.done, *restored.left):
        ctx.say(f"after an interrupted run: {line}")
    if any(map(is_foreign, fleet.engines())):
        return foreign.run(ctx, options, restored)
    if not options.measure_only:
        need_drill(fleet)
    need_serving(ctx, "to measure")
    name = profile_name(fleet)
    numbers = load_profile(fleet.paths.profiles, name).numbers()
    report = TuneReport(name, numbers[INFLIGHT], restored.done, left_alone=restored.left)
    if options.verify:
        need_in_force(ctx, name, report.present)
    if question := _question(fleet, options):
        options.confirm(question)
    return to_its_end(fleet, report, lambda: _go(ctx, options, report, numbers))


def _go(ctx: Context, options: Options, report: TuneReport, numbers: dict[str, float]) -> None:
    if not options.verify:
        _measure(ctx, options, report, numbers)
        if options.measure_only or report.proposal is None or report.proposal.value is None:
            return
    report.proofs = _drill(ctx, report)
    kept(ctx.fleet, report)
    if report.ok and options.apply and report.proposal is not None:
        _apply(ctx, options, report, report.proposal)
    if report.ok and report.proofs and (options.verify or report.applied):
        _vouch(ctx, report, _applied_value(report))


def _question(fleet: Fleet, options: Options) -> str:
    """What will be done to the fleet, "" for nothing that needs a yes."""
    sides = "its decodes alone" if options.one_sided else "its cells"
    restarts = f"restart {sides} {options.restarts} times" if options.restarts else ""
    if options.measure_only:
        return f"Load {fleet.name} and {restarts}?" if restarts else ""
    before = ", ".join(filter(None, (f"Load {fleet.name}", restarts)))
    begin = "Stall" if options.verify else f"{before}, then stall"
    return f"{begin} one transfer per prefill and set a short timeout meanwhile?"


def _measure(ctx: Context, options: Options, report: TuneReport, numbers: dict[str, float]) -> None:
    patience = max(Shape.deadline, numbers.get(IDLE, 0.0))
    asked = (options.seconds, options.wanted.target, options.limit, options.context, patience)
    wanted = plans(ctx.fleet, *asked)
    report.context = options.context
    report.phases = measure(ctx, wanted)
    if options.restarts:
        load = next(plan for plan in wanted if plan.name == "load")
        report.phases += measure_restarts(ctx, options.restarts, options.one_sided, load)
    phases = {p.name: p for p in report.phases}
    saturated = phases["saturated"]
    report.proposal = propose(
        {name: p.dwells for name, p in phases.items()},
        options.wanted,
        was_saturated=saturated.waiting > 0,
        waited=max(p.waited for p in report.phases),
        trouble="; ".join(f"{p.name}: {p.trouble}" for p in report.phases if p.trouble),
        pace=len(saturated.dwells) / saturated.seconds if saturated.seconds else 0.0,
        cut_by=frozenset[str]().union(*(p.cut_by for p in report.phases)),
    )
    if report.proposal.value is not None:
        silent = options.wanted.margin * max(p.silent for p in report.phases)
        changed = chain(report.proposal.value, numbers, silent)
        report.changes = [Change(env, numbers[env], value) for env, value in changed.items()]


def test_value(phases: Sequence[Phase], limit: float) -> float:
    """Short enough to watch, far above the dwell of the drill's own light load, below `limit`."""
    light = [d for p in phases if p.name == "load" for d in p.dwells]
    wanted = max(_TEST_LEAST, math.ceil(4.0 * max(light, default=0.0)))
    return min(wanted, limit)


def _edges(fleet: Fleet) -> list[tuple[Engine, Engine]]:
    """One edge for each prefill: its watchdog is what is proved."""
    first: dict[str, tuple[Engine, Engine]] = {}
    for prefill, decode in fleet.edges():
        first.setdefault(prefill.name, (prefill, decode))
    return list(first.values())


def _drill(ctx: Context, report: TuneReport) -> list[Proof]:
    edges = _edges(ctx.fleet)
    short = test_value(report.phases, report.present)
    record = Record(faults=[Fault(p.name, FAULT) for p, _ in edges])
    for prefill, _ in edges:
        add_live(ctx, record, prefill.name, {"inflight": short})
    write(ctx.fleet, record)
    try:
        return [prove(ctx, prefill, decode, short) for prefill, decode in edges]
    finally:
        restored = restore(ctx)
        report.put_back = report.put_back + restored.done
        report.left_alone = report.left_alone + restored.left
        for line in (*restored.done, *restored.left):
            ctx.say(f"put back: {line}")


def _apply(ctx: Context, options: Options, report: TuneReport, proposal: Proposal) -> None:
    """Set the chain, and see the watchdog of what is in force now fire once more."""
    wanted = {change.env: change.new for change in report.changes}
    if wanted:
        said = ", ".join(f"{env}={value:g}" for env, value in wanted.items())
        options.confirm(f"Write {said} into profile {report.profile} and set it live?")
        report.changes = apply(ctx, wanted, reasons(proposal))
        report.notes = note_deployment(ctx, wanted)
    report.applied = True
    if wanted:
        report.again = _drill(ctx, report)


def _applied_value(report: TuneReport) -> float:
    """The inflight value that the drill is to vouch for."""
    new = {change.env: change.new for change in report.changes} if report.applied else {}
    return new.get(INFLIGHT, report.present)


def _vouch(ctx: Context, report: TuneReport, value: float) -> None:
    report.unvouched = vouch(ctx, report.again or report.proofs, report.evidence, value)
    report.verified = not report.unvouched
