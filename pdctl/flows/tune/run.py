"""tune-timeout: measure dwell, propose a value, see the watchdog fire, apply; old values on any way out."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from pdctl.errors import PdctlError, UnreachableError
from pdctl.exits import Exit
from pdctl.fleet.chain import INFLIGHT
from pdctl.fleet.model import Engine, Fleet
from pdctl.fleet.profile import load_profile
from pdctl.flows import admin, drill
from pdctl.flows.context import Context
from pdctl.flows.deploy.gate import unready
from pdctl.flows.tune import recovery
from pdctl.flows.tune.apply import Change, add_live, apply, by, need_in_force, profile_name, vouch
from pdctl.flows.tune.files import write_env
from pdctl.flows.tune.measure import Phase, measure
from pdctl.flows.tune.proof import FAULT, Proof, prove
from pdctl.flows.tune.proposal import Proposal, chain, propose, reasons

_TEST_LEAST = 3.0


@dataclass(frozen=True)
class Options:
    """`seconds` per measured phase. `confirm` raises when the operator declines."""

    seconds: float = 20.0
    measure_only: bool = False
    verify: bool = False
    apply: bool = False
    confirm: Callable[[str], None] = lambda question: None


@dataclass
class TuneReport:
    """`restored` is what an interrupted earlier run had left; `changes` what is proposed or applied.

    `left_alone` is what somebody changed behind such a run or this one, `unvouched` why a watchdog that
    was seen to fire is not recorded as verified, `notes` what else is left to do.
    """

    profile: str
    present: float
    restored: list[str] = field(default_factory=list)
    phases: tuple[Phase, ...] = ()
    proposal: Proposal | None = None
    proofs: list[Proof] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    applied: bool = False
    verified: bool = False
    put_back: list[str] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)
    unvouched: str = ""
    notes: list[str] = field(default_factory=list)
    evidence: str = ""

    @property
    def ok(self) -> bool:
        refused = self.proposal is not None and self.proposal.value is None
        return not refused and not self.unvouched and all(p.ok for p in self.proofs)

    @property
    def exit(self) -> Exit:
        return Exit.OK if self.ok else Exit.FINDINGS

    def document(self) -> dict[str, Any]:
        doc = {
            "schema": 1,
            "ok": self.ok,
            "exit": int(self.exit),
            "by": by(),
            "at": time.time(),
            "profile": self.profile,
            "present_s": self.present,
            "restored": self.restored,
            "phases": [_phase(p) for p in self.phases],
            "proposal": asdict(self.proposal) if self.proposal else None,
            "proofs": [asdict(p) | {"ok": p.ok} for p in self.proofs],
            "changes": [asdict(c) for c in self.changes],
            "applied": self.applied,
            "verified": self.verified,
            "put_back": self.put_back,
            "left_alone": self.left_alone,
            "unvouched": self.unvouched,
            "notes": self.notes,
            "evidence": self.evidence,
        }
        return doc


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "name": phase.name,
        "seconds": phase.seconds,
        "requests": len(phase.shots),
        "failed": phase.failed,
        "waiting": phase.waiting,
        "other_outcomes": phase.worst,
        "dwells": [round(d, 4) for d in phase.dwells],
    }


def run(ctx: Context, options: Options) -> TuneReport:
    """What is found is in the report.

    ConfigError when a drill is asked for and the fleet takes none, UnreachableError or PdctlError when the
    fleet does not serve, PdctlError when there is nothing in force to verify. The operator is asked before
    anything is sent.
    """
    fleet = ctx.fleet
    restored = recovery.restore(ctx)
    for line in (*restored.done, *restored.left):
        ctx.say(f"after an interrupted run: {line}")
    if not options.measure_only:
        drill.need_drill(fleet)
    _need_serving(ctx)
    name = profile_name(fleet)
    numbers = load_profile(fleet.paths.profiles, name).numbers()
    report = TuneReport(name, numbers[INFLIGHT], restored.done, left_alone=restored.left)
    if options.verify:
        need_in_force(ctx, name, report.present)
    if not options.measure_only:
        begin = "Stall" if options.verify else f"Load {fleet.name}, then stall"
        options.confirm(f"{begin} one transfer per prefill and set a short timeout meanwhile?")
    if not options.verify:
        _measure(ctx, options, report, numbers)
        if options.measure_only or report.proposal is None or report.proposal.value is None:
            return _kept(fleet, report)
    _drill(ctx, report)
    _kept(fleet, report)
    if report.ok and options.apply and report.proposal is not None:
        _apply(ctx, options, report, report.proposal)
    if report.ok and report.proofs and (options.verify or report.applied):
        _vouch(ctx, report, _applied_value(report))
    return _kept(fleet, report)


def _need_serving(ctx: Context) -> None:
    """Everything is ready and the router admits: only then does a measurement say something."""
    missing = unready(ctx)
    if missing:
        said = "; ".join(f"{name}: {why.removesuffix(' yet')}" for name, why in missing.items())
        message = f"{ctx.fleet.name} does not serve, so there is nothing to measure: {said}."
        hint = "Run `pdctl diagnose` for the cause, or `pdctl deploy` if it was never started."
        if any(not admin.state(ctx, u.url) for u in ctx.fleet.units() if u.name in missing):
            raise UnreachableError("not_serving", message, hint)
        raise PdctlError("not_serving", message, hint, exit=Exit.FINDINGS)
    if admin.get(ctx, ctx.fleet.router.url, "/v1/state").get("admission") != "open":
        message = "The router holds requests back, so there is nothing to measure."
        raise PdctlError("not_serving", message, "`pdctl resume` opens admissions.", exit=Exit.FINDINGS)


def _measure(ctx: Context, options: Options, report: TuneReport, numbers: dict[str, float]) -> None:
    report.phases = measure(ctx, options.seconds)
    load, saturated = report.phases
    trouble = "; ".join(f"{p.name}: {p.trouble}" for p in report.phases if p.trouble)
    report.proposal = propose(
        load.dwells, saturated.dwells, was_saturated=saturated.waiting > 0, trouble=trouble
    )
    if report.proposal.value is not None:
        wanted = chain(report.proposal.value, numbers)
        report.changes = [Change(env, numbers[env], value) for env, value in wanted.items()]


def test_value(phases: tuple[Phase, ...], limit: float) -> float:
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


def _drill(ctx: Context, report: TuneReport) -> None:
    edges = _edges(ctx.fleet)
    short = test_value(report.phases, report.present)
    record = recovery.Record(faults=[(p.name, FAULT) for p, _ in edges])
    for prefill, _ in edges:
        add_live(ctx, record, prefill.name, {"inflight": short})
    recovery.write(ctx.fleet, record)
    try:
        for prefill, decode in edges:
            report.proofs.append(prove(ctx, prefill, decode, short))
    finally:
        restored = recovery.restore(ctx)
        report.put_back, report.left_alone = restored.done, report.left_alone + restored.left
        for line in (*restored.done, *restored.left):
            ctx.say(f"put back: {line}")


def _apply(ctx: Context, options: Options, report: TuneReport, proposal: Proposal) -> None:
    wanted = {change.env: change.new for change in report.changes}
    if wanted:
        said = ", ".join(f"{env}={value:g}" for env, value in wanted.items())
        options.confirm(f"Write {said} into profile {report.profile} and set it live?")
        report.changes = apply(ctx, wanted, reasons(proposal))
        report.notes = write_env(ctx, wanted)
    report.applied = True


def _applied_value(report: TuneReport) -> float:
    """The inflight value that the drill is to vouch for."""
    new = {change.env: change.new for change in report.changes} if report.applied else {}
    return new.get(INFLIGHT, report.present)


def _vouch(ctx: Context, report: TuneReport, value: float) -> None:
    report.unvouched = vouch(ctx, report.proofs[0], report.evidence, value)
    report.verified = not report.unvouched


def _kept(fleet: Fleet, report: TuneReport) -> TuneReport:
    """The evidence on disk, one file a run, rewritten as the run goes on."""
    folder = fleet.paths.evidence
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not report.evidence:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            report.evidence = str((folder / f"tune-timeout-{stamp}.json").relative_to(fleet.dir))
        (fleet.dir / report.evidence).write_text(json.dumps(report.document(), indent=1) + "\n")
    except OSError as error:
        raise PdctlError("no_evidence", f"The evidence cannot be written: {error}.") from None
    return report
