"""Do what was decided, through the same flows as the CLI: the fleet's lock, a run, audit records.

Under the lock everything is looked at once more: the pause, the lease, and for what needs it the proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pdctl.errors import LockedError, PdctlError
from pdctl.fleet.model import Engine, Fleet
from pdctl.flows import admin
from pdctl.flows.admission import abort
from pdctl.flows.changing import changing
from pdctl.flows.co_restart.states import LOAD
from pdctl.flows.context import Context, Say
from pdctl.flows.relink import EDGE, relink_now, unlinked
from pdctl.flows.restart import co_restart_now, restart_unit_now
from pdctl.flows.supervise.prove import prove
from pdctl.flows.supervise.switch import pause_of
from pdctl.remote.journal import Call, Journal
from pdctl.supervisor.decide import Decision
from pdctl.supervisor.policy import Act

# In a run of the supervisor: what it was done for. Its successor knows by it what to go on with.
NOTE = "supervise"


@dataclass(frozen=True)
class Outcome:
    """`outcome`: done, failed, or refused where nothing was done. `seconds` is what it cost those served."""

    outcome: str
    detail: str
    run: str = ""

    @property
    def acted(self) -> bool:
        return self.outcome != "refused"


@dataclass(frozen=True)
class Terms:
    """What must still hold once the fleet is ours. `lease` raises LockedError when another supervisor acts.

    `others` are the other cells that serve; `canary` the deadline of the proof, seconds.
    """

    incident: int
    others: frozenset[str]
    canary: float
    lease: Callable[[], None]


class Refused(PdctlError):
    """Nothing was done, and why."""


def act(fleet: Fleet, decision: Decision, terms: Terms, say: Say, resumes: str = "") -> Outcome:
    """Never raises for what the fleet does."""
    with Context(fleet, say=say, resumes=resumes) as ctx:
        try:
            with changing(ctx, _call(decision)) as journal:
                journal.note(NOTE, incident=terms.incident, act=decision.act.value, why=decision.why)
                try:
                    _ask_again(ctx, decision, terms)
                    detail = _do(ctx, journal, decision)
                except Refused as error:
                    journal.ends("failed", error.message)
                    return Outcome("refused", error.message, journal.id)
                return detail
        except LockedError as error:
            return Outcome("refused", error.message)
        except PdctlError as error:
            return Outcome("failed", error.message)


def _call(decision: Decision) -> Call:
    """As an operator would have asked for it, so that `pdctl resume RUN` does the same."""
    match decision.act:
        case Act.CO_RESTART:
            words: tuple[str, ...] = ("restart", "--co", decision.target, "--yes")
        case Act.RESTART:
            words = ("restart", decision.target, "--yes")
        case Act.RELINK:
            words = ("relink", *decision.target.split(EDGE), "--yes")
        case Act.ABORT:
            return Call(f"abort {decision.request}")
        case Act.CORDON:
            return Call(f"cordon {decision.target}")
    return Call(" ".join(words[:-1]), words)


def _ask_again(ctx: Context, decision: Decision, terms: Terms) -> None:
    """Refused when what was decided on is not so any more."""
    pause, _ = pause_of(ctx).look()
    if pause is not None:
        raise Refused("paused", f"The supervisor is {pause.words()}.")
    try:
        terms.lease()
    except LockedError as error:
        raise Refused("no_lease", error.message) from None
    if decision.act is Act.RELINK and not unlinked(ctx, *_edge(ctx, decision)):
        raise Refused("linked", f"{decision.target} is linked.")
    if not decision.proof:
        return
    proof = prove(ctx, ctx.fleet.cells[decision.cell], terms.canary)
    ctx.say(f"proof: {proof.words()}")
    if not proof.wedged:
        raise Refused("not_proven", f"The wedge is not proven: {proof.words()}.")
    if proof.partial and not terms.others:
        raise Refused(
            "last_cell", f"Cell {decision.cell} serves in part and no other cell is healthy: {proof.words()}."
        )


def _edge(ctx: Context, decision: Decision) -> tuple[Engine, Engine]:
    """(prefill, decode) of a target that is an edge."""
    prefill, decode = decision.target.split(EDGE)
    return ctx.fleet.engine(prefill), ctx.fleet.engine(decode)


def _do(ctx: Context, journal: Journal, decision: Decision) -> Outcome:
    fleet = ctx.fleet
    match decision.act:
        case Act.CO_RESTART:
            report = co_restart_now(ctx, journal, fleet.cells[decision.target])
            cell = report.cells[-1]
            if report.ok:
                out = cell.out_of_service_s or 0.0
                return Outcome("done", f"admissions were held for {out:.1f} s", journal.id)
            stage = cell.machine.at or cell.machine.stage
            return Outcome("failed", f"{stage}: {cell.machine.reason or cell.machine.event}", journal.id)
        case Act.RESTART:
            restart_unit_now(ctx, fleet.unit(decision.target), LOAD)
            return Outcome("done", f"{decision.target} is ready", journal.id)
        case Act.RELINK:
            seconds = relink_now(ctx, *_edge(ctx, decision))
            return Outcome("done", f"linked anew in {seconds:.1f} s, and a canary passed", journal.id)
        case Act.ABORT:
            abort(ctx, decision.request)
            return Outcome("done", f"{decision.request} was ended", journal.id)
        case Act.CORDON:
            body = {"engine": decision.target, "cordoned": True}
            admin.post(ctx, fleet.router.url, "cordon", body)
            return Outcome("done", f"the router sends nothing to {decision.target}", journal.id)
