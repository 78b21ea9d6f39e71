"""One run of diagnose as a value, and as the document of pdctl/contracts/diagnose.json; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdctl.adapters.picture import Reach
from pdctl.diagnose.changed import doubted
from pdctl.diagnose.facts import EngineView, Facts, RouterView
from pdctl.diagnose.ledger import Entry, join
from pdctl.diagnose.named import named
from pdctl.diagnose.rule import Hypothesis, Severity
from pdctl.diagnose.runner import Ran, run
from pdctl.diagnose.suppress import Muted, sift
from pdctl.diagnose.verdict import Placed, Verdict, judge
from pdctl.exits import Exit
from pdctl.facts.missing import Missing, known


@dataclass(frozen=True)
class Report:
    """`seconds` is what the collection took; `muted` are findings that a suppression keeps out of it."""

    facts: Facts
    ran: Ran
    verdict: Verdict
    ledger: tuple[Entry, ...]
    seconds: float
    muted: tuple[Muted, ...] = ()

    def exit(self, fail_on: Severity) -> Exit:
        """FINDINGS when the worst finding reaches `fail_on`."""
        found = bool(self.verdict.findings) and self.verdict.worst >= fail_on
        return Exit.FINDINGS if found else Exit.OK


def _blind(facts: Facts) -> list[str]:
    """Engines that answer, or may, and list no requests, as other kinds do."""
    answers = (Reach.OK, Reach.NOT_ASKED)
    return [e.name for e in facts.engines if e.reach in answers and not e.shows_requests]


def make(facts: Facts, seconds: float) -> Report:
    """Run every rule over `facts` and judge."""
    ran = run(facts)
    findings = [doubted(named(f, facts), facts) for f in ran.findings]
    counted, muted = sift(findings, facts.suppressions, facts.at)
    verdict = judge(counted, _blind(facts), [m.finding for m in muted])
    return Report(facts, ran, verdict, join(facts), seconds, tuple(muted))


def document(report: Report, fail_on: Severity = Severity.WARNING) -> dict[str, Any]:
    """diagnose.json, schema 1."""
    verdict, facts = report.verdict, report.facts
    return {
        "schema": 1,
        "fleet": facts.fleet,
        "at": facts.at,
        "seconds": round(report.seconds, 3),
        "exit": int(report.exit(fail_on)),
        "verdict": {
            "status": verdict.status,
            "summary": verdict.summary,
            "leading": verdict.leading,
            "hypotheses": _hypotheses(verdict.hypotheses),
        },
        "findings": [_finding(placed) for placed in verdict.findings],
        "suppressed": [
            {
                "code": m.finding.code,
                "subject": m.finding.subject,
                "summary": m.finding.summary,
                "reason": m.by.reason,
                "until": m.by.until,
            }
            for m in report.muted
        ],
        "ledger": [_entry(entry) for entry in report.ledger],
        "subjects": [_subject(view) for view in _views(facts)],
        "unread": [{"document": name, "reason": why} for name, why in facts.unread],
        "rules": {
            "run": list(report.ran.run),
            "skipped": [
                {"code": s.code, "subject": s.subject, "reason": s.reason} for s in report.ran.skipped
            ],
        },
    }


def _views(facts: Facts) -> list[EngineView | RouterView]:
    router = [facts.router] if known(facts.router) else []
    return [*facts.engines, *router]


def _hypotheses(items: tuple[Hypothesis, ...]) -> list[dict[str, str]]:
    return [{"text": h.text, "test": h.test} for h in items]


def _finding(placed: Placed) -> dict[str, Any]:
    f = placed.finding
    return {
        "code": f.code,
        "title": f.title,
        "severity": f.severity.word,
        "role": f.role,
        "subject": f.subject,
        "touches": sorted(f.touches),
        "summary": f.summary,
        "evidence": list(f.evidence),
        "since": f.since,
        "remedy": f.remedy,
        "certain": f.certain,
        "hypotheses": _hypotheses(f.hypotheses),
        "caused_by": placed.caused_by,
    }


def _entry(e: Entry) -> dict[str, Any]:
    return {
        "id": e.id,
        "room": e.room,
        "verdict": e.verdict,
        "holder": e.holder,
        "stage": e.stage,
        "age_s": round(e.age, 3),
        "stage_age_s": round(e.stage_age, 3),
        "since": e.since,
        "waiting_on": e.waiting_on,
        "why": e.why,
        "lost": e.lost,
        "prefill": e.prefill,
        "prefill_stage": e.prefill_stage,
        "prefill_pages": e.prefill_pages,
        "decode": e.decode,
        "decode_stage": e.decode_stage,
        "decode_pages": e.decode_pages,
    }


def _subject(view: EngineView | RouterView) -> dict[str, Any]:
    member, state = view.member, view.state
    unit, process = member.unit, member.process
    incarnation = None if isinstance(state, Missing) else state.incarnation
    started = None if isinstance(state, Missing) else state.started_at
    return {
        "name": member.name,
        "role": member.role,
        "cell": member.cell,
        "reach": view.reach.value,
        "detail": view.pair.second.detail,
        "unit": unit.state if known(unit) else str(unit),
        "process": process.status if known(process) else str(process),
        "incarnation": incarnation if isinstance(incarnation, str) else None,
        "started_at": started if isinstance(started, float) else None,
        "seconds": round(max(view.pair.first.seconds, view.pair.second.seconds), 3),
    }
