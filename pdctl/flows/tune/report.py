"""What a tune-timeout is asked to do, and what came of it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Fleet
from pdctl.flows.tune.apply import Change, by
from pdctl.flows.tune.measure import CONTEXT, Phase
from pdctl.flows.tune.proof import Proof
from pdctl.flows.tune.proposal import Proposal, Wanted


@dataclass(frozen=True)
class Options:
    """A measured phase takes `seconds`, again until the target's transfers were seen or `limit` is over, with
    conversations of up to `context` tokens.

    `restarts` of the fleet are measured behind, of decodes alone with `one_sided`. `confirm` raises when the
    operator declines.
    """

    seconds: float = 20.0
    limit: float = 600.0
    context: int = CONTEXT
    wanted: Wanted = field(default_factory=Wanted)
    restarts: int = 0
    one_sided: bool = False
    measure_only: bool = False
    verify: bool = False
    apply: bool = False
    confirm: Callable[[str], None] = lambda question: None


@dataclass
class TuneReport:
    """`restored` is what an interrupted earlier run had left; `changes` what is proposed or applied.

    `again` are the proofs after the value was applied. `left_alone` is what somebody changed behind such a
    run or this one, `unvouched` why a watchdog that was seen to fire is not recorded as verified, `notes`
    what else is left to do, `stopped` what stands behind an interrupt, "" without one.
    """

    profile: str
    present: float
    restored: list[str] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    proposal: Proposal | None = None
    context: int = CONTEXT
    proofs: list[Proof] = field(default_factory=list)
    again: list[Proof] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    applied: bool = False
    verified: bool = False
    put_back: list[str] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)
    unvouched: str = ""
    stopped: str = ""
    notes: list[str] = field(default_factory=list)
    evidence: str = ""

    @property
    def ok(self) -> bool:
        refused = self.proposal is not None and self.proposal.value is None
        whole = not refused and not self.unvouched and not self.stopped
        return whole and all(p.ok for p in (*self.proofs, *self.again))

    @property
    def exit(self) -> Exit:
        if self.stopped:
            return Exit.INTERRUPTED
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
            "context": self.context,
            "phases": [_phase(p) for p in self.phases],
            "proposal": asdict(self.proposal) if self.proposal else None,
            "proofs": [asdict(p) | {"ok": p.ok} for p in self.proofs],
            "after_apply": [asdict(p) | {"ok": p.ok} for p in self.again],
            "changes": [asdict(c) for c in self.changes],
            "applied": self.applied,
            "verified": self.verified,
            "put_back": self.put_back,
            "left_alone": self.left_alone,
            "unvouched": self.unvouched,
            "stopped": self.stopped,
            "notes": self.notes,
            "evidence": self.evidence,
        }
        return doc


def records(report: TuneReport) -> list[tuple[str, dict[str, Any]]]:
    """What its run keeps in the journal, by name: measured, proposed, seen to fire, changed."""
    kept: list[tuple[str, dict[str, Any]]] = [(f"dwell, {p.name}", _spread(p.dwells)) for p in report.phases]
    if (proposal := report.proposal) is not None:
        value = {} if proposal.value is None else {"value_s": proposal.value, "was_s": report.present}
        kept.append(("proposed" if value else "no proposal", value | {"reason": proposal.reason}))
    for proofs, when in ((report.proofs, ""), (report.again, " after applying")):
        for p in proofs:
            fired = {"fired_after_s": "not seen" if p.fired_after is None else round(p.fired_after, 3)}
            wrong = {"not_met": ", ".join(p.failed)} if p.failed else {}
            said = {"test_value_s": p.test_value} | fired | wrong
            kept.append((f"watchdog {p.watchdog} of {p.prefill}{when}", said))
    if report.changes:
        changes = {c.env: f"{c.old:g} -> {c.new:g}" for c in report.changes}
        kept.append(("applied" if report.applied else "not applied", changes))
    last = {"ok": report.ok, "applied": report.applied, "verified": report.verified}
    return [*kept, ("tune-timeout", last | {"evidence": report.evidence})]


def _spread(dwells: Sequence[float]) -> dict[str, Any]:
    """A 99th percentile of fewer than a hundred would be the longest under another name."""
    ordered, n = sorted(dwells), len(dwells)
    p99 = {"p99_s": round(ordered[math.ceil(0.99 * n) - 1], 3)} if n >= 100 else {}
    longest = {"longest_s": round(ordered[-1], 3)} if ordered else {}
    return {"transfers": n} | p99 | longest


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "name": phase.name,
        "seconds": phase.seconds,
        "requests": len(phase.shots),
        "failed": phase.failed,
        "waiting": phase.waiting,
        "waited_s": phase.waited,
        "other_outcomes": phase.worst,
        "dwells": [round(d, 4) for d in phase.dwells],
    }


def kept(fleet: Fleet, report: TuneReport) -> TuneReport:
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
