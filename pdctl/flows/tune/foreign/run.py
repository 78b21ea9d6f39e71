"""tune-timeout on engines of another kind: their timers are read at start, so a value takes a deploy.

What a transfer dwells is not told by them. The whole time of a request of one token is an upper bound of it,
and is what is measured.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.edit import now, set_values, set_verified
from pdctl.fleet.model import Engine, Fleet
from pdctl.fleet.profile import load_profile
from pdctl.fleet.schema import Verified
from pdctl.flows.context import Context
from pdctl.flows.load.run import drive
from pdctl.flows.recovery.record import Record, forget, write
from pdctl.flows.recovery.redeploy import pending, redeploy
from pdctl.flows.recovery.restore import Restored, restore
from pdctl.flows.serving import need_serving
from pdctl.flows.tune.apply import Change, by, profile_name
from pdctl.flows.tune.foreign.proof import prove
from pdctl.flows.tune.foreign.watchdogs import Watchdog, absent, watchdogs
from pdctl.flows.tune.measure import Phase, Plan, plans
from pdctl.flows.tune.proof import Proof
from pdctl.flows.tune.proposal import Proposal, propose
from pdctl.flows.tune.report import Options, TuneReport, kept
from pdctl.flows.tune.stopped import to_its_end

_SHORT = 10.0
# The handshake's deadline over the watchdog's: it also covers the wait for memory on decode.
_ABOVE = 1.5


def run(ctx: Context, options: Options, restored: Restored) -> TuneReport:
    """What is found is in the report; errors as tune/run.py raises them."""
    fleet = ctx.fleet
    need_serving(ctx, "to measure")
    pairs = _pairs(fleet)
    dogs = {name: watchdogs(fleet, prefill) for name, (prefill, _) in pairs.items()}
    first = next(iter(dogs.values()))
    report = TuneReport(profile_name(fleet), first[0].value if first else 0.0, restored.done)
    report.left_alone = restored.left
    report.notes = _without(fleet, pairs)
    options.confirm(_question(fleet, options, dogs))
    return to_its_end(fleet, report, lambda: _go(ctx, options, report, pairs))


def _go(
    ctx: Context, options: Options, report: TuneReport, pairs: Mapping[str, tuple[Engine, Engine | None]]
) -> None:
    if not options.verify:
        _measure(ctx, options, report)
    if options.measure_only or (report.proposal is not None and report.proposal.value is None):
        return
    report.proofs = _shown(ctx, options, report, pairs)
    kept(ctx.fleet, report)
    if report.ok and options.apply and report.changes:
        _apply(ctx, options, report, pairs)
    _vouch(ctx, report)


def _pairs(fleet: Fleet) -> dict[str, tuple[Engine, Engine | None]]:
    """Each prefill (or whole engine) and a decode of it, where it has one."""
    found: dict[str, tuple[Engine, Engine | None]] = {}
    for prefill, decode in fleet.edges():
        found.setdefault(prefill.name, (prefill, decode))
    if not found:
        raise PdctlError(
            "no_edge", f"{fleet.name} has no prefill with a decode: nothing is handed over.", exit=Exit.USAGE
        )
    return found


def _without(fleet: Fleet, pairs: Mapping[str, tuple[Engine, Engine | None]]) -> list[str]:
    """What these kinds have no watchdog for, once each."""
    notes: dict[str, None] = {}
    for prefill, decode in pairs.values():
        for engine, deadline in ((prefill, "inflight"), (decode, "transfer")):
            if engine is None or any(d.deadline == deadline for d in watchdogs(fleet, engine)):
                continue
            notes[f"{engine.kind} {deadline}: {absent(engine.kind, deadline).rstrip('.')}"] = None
    return list(notes)


def _question(fleet: Fleet, options: Options, dogs: Mapping[str, list[Watchdog]]) -> str:
    longest = max((d.value for mine in dogs.values() for d in mine), default=0.0)
    load = "" if options.verify else f"Load {fleet.name}"
    if options.measure_only:
        return f"{load}?"
    if options.restarts:
        how = "redeploy with a short value and back, and leave one request to each prefill without a decode"
    else:
        how = f"leave one request to each prefill without a decode, up to {longest:g} s"
    return f"{load}, then {how}?" if load else f"{how[0].upper()}{how[1:]}?"


def _measure(ctx: Context, options: Options, report: TuneReport) -> None:
    if ctx.fleet.router.kind == "none":
        report.notes.append("nothing was measured: the fleet file names no router to send load through")
        return
    wanted = plans(ctx.fleet, options.seconds, options.wanted.target, options.limit, options.context)
    report.context = options.context
    report.phases = [_phase(ctx, plan) for plan in wanted]
    saturated = next(p for p in report.phases if p.name == "saturated")
    proposal = propose(
        {p.name: p.dwells for p in report.phases},
        options.wanted,
        trouble="; ".join(f"{p.name}: {p.trouble}" for p in report.phases if p.trouble),
        pace=len(saturated.dwells) / saturated.seconds if saturated.seconds else 0.0,
    )
    bound = "what was measured is the whole time of requests of one token, an upper bound of their dwell"
    full = "whether decode was saturated is not known: these engines do not say what waits for a place"
    report.proposal = replace(proposal, cautions=(*proposal.cautions, bound, full))
    if proposal.value is not None:
        report.changes = _changes(ctx.fleet, proposal.value, report)


def _phase(ctx: Context, plan: Plan) -> Phase:
    shape = replace(plan.shape, tokens=1, stream=False)
    ctx.say(f"measuring requests of one token, {plan.name}: {shape.agents} agents for {shape.seconds:g} s")
    phase = Phase(plan.name, 0.0, (), {}, 0, ())
    began = time.monotonic()
    while True:
        before = len(phase.dwells)
        shots = (*phase.shots, *asyncio.run(drive(ctx, shape, seed=before)).shots)
        took = round(time.monotonic() - began, 1)
        phase = Phase(plan.name, took, tuple(s.seconds for s in shots if s.ok), {}, 0, shots)
        have = len(phase.dwells)
        if have >= plan.enough or have == before or took + shape.seconds > plan.limit:
            return phase


def _changes(fleet: Fleet, value: float, report: TuneReport) -> list[Change]:
    """The chain in these engines' names: decode's wait inside the watchdog, the handshake above it, so that
    it can be told which of the two ended a request."""
    wanted: dict[str, tuple[float, float]] = {}
    for prefill, decode in _pairs(fleet).values():
        mine = {d.deadline: d for d in watchdogs(fleet, prefill)}
        theirs = {d.deadline: d for d in (watchdogs(fleet, decode) if decode else [])}
        inner = float(math.floor(value * 5.0 / 6.0)) if "inflight" in mine else value
        plan = [(mine.get("inflight"), value), (theirs.get("transfer"), inner)]
        handshake = mine.get("handshake")
        if handshake is not None:
            least = _times(value, handshake) if "inflight" in mine else value
            plan.append((handshake, max(handshake.value, least)))
        for dog, seconds in plan:
            if dog is None or dog.value == seconds:
                continue
            if not dog.settable:
                report.notes.append(f"{dog.name} of {seconds:g} s has to be set in {dog.where}, by hand")
                continue
            wanted[dog.name] = (dog.value, seconds)
    return [Change(name, old, new) for name, (old, new) in wanted.items()]


def _times(value: float, dog: Watchdog) -> float:
    """The value of `dog` beside an inflight watchdog of `value` seconds."""
    return float(math.ceil(_ABOVE * value)) if dog.deadline == "handshake" else value


def _shown(
    ctx: Context, options: Options, report: TuneReport, pairs: Mapping[str, tuple[Engine, Engine | None]]
) -> list[Proof]:
    """At the values in force; with restarts allowed at a short one, by deploys to it and back."""
    dogs = [d for prefill, _ in pairs.values() for d in watchdogs(ctx.fleet, prefill)]
    able = {d.name: d for d in dogs if d.deadline != "transfer" and d.settable}
    if not options.restarts or not able:
        return _proofs(ctx, pairs)
    light = [d for p in report.phases if p.name == "load" for d in p.dwells]
    short = max(_SHORT, math.ceil(4.0 * max(light, default=0.0)))
    both = any(d.deadline == "inflight" for d in able.values())
    values = {n: _times(short, d) if both else short for n, d in able.items()}
    short_ones = {n: min(seconds, able[n].value) for n, seconds in values.items()}
    _set(ctx, short_ones, "A drill: short enough to watch.")
    try:
        return _proofs(ctx, pairs)
    finally:
        report.put_back += restore(ctx).done


def _proofs(ctx: Context, pairs: Mapping[str, tuple[Engine, Engine | None]]) -> list[Proof]:
    return [
        proof
        for prefill, decode in pairs.values()
        for proof in prove(ctx, prefill, decode, watchdogs(ctx.fleet, prefill))
    ]


def _set(ctx: Context, values: Mapping[str, float], reason: str | Mapping[str, str]) -> None:
    """Into the profile and, by a deploy, into force. The record says how to go back until it is forgotten.

    PdctlError when something else is waiting to be deployed; everything is as before after any error.
    """
    fleet = ctx.fleet
    if pending(ctx).plan.changes:
        raise PdctlError(
            "not_deployed",
            "Something else is waiting to be deployed, and would be deployed along.",
            "Run `pdctl deploy` first.",
            exit=Exit.FINDINGS,
        )
    said = {n: reason if isinstance(reason, str) else reason[n] for n in values}
    rows = {name: (f"{seconds:g}", said[name]) for name, seconds in values.items()}
    edit = set_values(fleet.paths.profiles, profile_name(fleet), rows, by())
    write(fleet, Record(files={str(edit.path): (edit.before, edit.after)}, deploys=True))
    try:
        edit.apply()
        redeploy(ctx)
    except BaseException:
        restore(ctx)
        raise


def _apply(
    ctx: Context, options: Options, report: TuneReport, pairs: Mapping[str, tuple[Engine, Engine | None]]
) -> None:
    """Deploy the chain, see it fire at its own value, and go back when it does not."""
    said = ", ".join(f"{c.env}={c.new:g}" for c in report.changes)
    options.confirm(f"Write {said} into profile {report.profile} and deploy it, which restarts its engines?")
    _set(ctx, {c.env: c.new for c in report.changes}, _reasons(report.changes, report.proposal))
    try:
        report.again = _proofs(ctx, pairs)
    except BaseException:
        restore(ctx)
        raise
    if not report.ok:
        report.put_back += restore(ctx).done
        return
    forget(ctx.fleet)
    report.applied = True


def _reasons(changes: Sequence[Change], proposal: Proposal | None) -> dict[str, str]:
    chain = proposal.reason if proposal else ""
    return {c.env: f"{c.new:g} s, of the chain around {chain}" for c in changes}


def _vouch(ctx: Context, report: TuneReport) -> None:
    """What was seen to fire at the value that the profile says is recorded there as verified."""
    folder, name = ctx.fleet.paths.profiles, report.profile
    values = load_profile(folder, name).values
    fired: dict[str, list[Proof]] = {}
    for proof in report.again or report.proofs:
        stated = values.get(proof.watchdog)
        if proof.fired_after is not None and stated and float(stated.value) == proof.test_value:
            fired.setdefault(proof.watchdog, []).append(proof)
    for watchdog, proofs in fired.items():
        proof = proofs[0]
        record = Verified(
            value=values[watchdog].value,
            fleet=ctx.fleet.name,
            units=[p.prefill for p in proofs],
            at=now(),
            by=by(),
            fired_after_s=round(proof.fired_after or 0.0, 3),
            test_value_s=proof.test_value,
            evidence=report.evidence,
        )
        set_verified(folder, name, watchdog, record)
        report.verified = True
