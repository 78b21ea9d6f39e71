"""tune-timeout for people: histograms with the proposed line, the proof check by check, what changed."""

from __future__ import annotations

from pdctl.fleet.chain import INFLIGHT
from pdctl.flows.tune.measure import Phase
from pdctl.flows.tune.proof import Proof
from pdctl.flows.tune.proposal import Proposal, histogram
from pdctl.flows.tune.report import TuneReport
from pdctl.render.paths import here

_NAMES = {"restarted": "after a restart", "cold": "cold, the first transfer after a restart"}


def show(report: TuneReport) -> None:
    value = report.proposal.value if report.proposal else None
    for phase in report.phases:
        print(f"Dwell in the inflight queue, {_NAMES.get(phase.name, phase.name)} ({_told(phase)})")
        for line in histogram(phase.dwells, value):
            print(f"  {line}")
    if report.proposal is not None:
        _proposed(report.proposal)
        print(f"Measured with conversations of up to {report.context} tokens; for longer ones: --context.")
    for proof in report.proofs:
        _proof(proof, "")
    for proof in report.again:
        _proof(proof, " after applying")
    for line in (*report.restored, *report.put_back):
        print(f"Restored: {line}")
    for line in report.left_alone:
        print(f"Left alone: {line}")
    if report.changes:
        print(f"{'Applied to' if report.applied else 'Would change'} profile {report.profile}:")
        for change in report.changes:
            print(f"  {change.env}: {change.old:g} -> {change.new:g} s")
    elif report.proposal is not None and value is not None:
        print(f"Profile {report.profile} already holds it.")
    if report.verified:
        print("The profile's value is recorded as verified.")
    elif report.unvouched:
        print(f"The value is NOT recorded as verified: {report.unvouched}.")
    elif report.ok and report.changes and not report.applied:
        print("Run with --apply to write and set it.")
    for note in report.notes:
        print(f"Note: {note}.")
    if report.stopped:
        print(f"Stopped before its end: {report.stopped}.")
    if report.evidence:
        print(f"Evidence: {report.evidence}")


def _told(phase: Phase) -> str:
    if not phase.shots:
        return f"{len(phase.dwells)} transfers"
    said = f"{phase.seconds:g} s; {len(phase.shots)} requests, {phase.failed} failed"
    return f"{said}, at most {phase.waiting} waiting on decode" + (
        f", {phase.waited:.1f} s the longest wait there" if phase.waited else ""
    )


def _proposed(proposal: Proposal) -> None:
    print(f"{'No proposal' if proposal.value is None else 'Proposed'}: {proposal.reason}")
    for caution in proposal.cautions:
        print(f"Caution: {caution}.")
    if proposal.fitted is not None:
        print(
            f"Beside it: a Pareto tail fitted to the longest tenth gives {proposal.fitted:.1e} beyond the "
            "value; it assumes that the tail goes on in its shape, and decides nothing."
        )


def _proof(proof: Proof, when: str) -> None:
    word = "fired"
    if proof.fired_after is None or not proof.ok:
        word = f"NOT proved: {', '.join(proof.failed) or 'it was not seen to fire'}"
    edge = f"{proof.prefill} -> {proof.decode}"
    named = "" if proof.watchdog == INFLIGHT else f" {proof.watchdog}"
    print(f"Watchdog{named} of {proof.prefill}{when} ({edge}, {proof.test_value:g} s): {word}")
    for check in proof.checks:
        mark = "--" if check.ok is None else "ok" if check.ok else "NO"
        said = f"not proved: {check.detail}" if check.ok is None else check.detail
        print(f"  {mark}  {check.name}: {said}")
    if proof.why:
        print(here(f"  Why: {proof.why}."))
