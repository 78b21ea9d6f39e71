"""tune-timeout for people: histograms with the proposed line, the proof check by check, what changed."""

from __future__ import annotations

from pdctl.flows.tune.proposal import histogram
from pdctl.flows.tune.run import TuneReport


def show(report: TuneReport) -> None:
    value = report.proposal.value if report.proposal else None
    for phase in report.phases:
        note = (
            f"{len(phase.shots)} requests, {phase.failed} failed, at most {phase.waiting} waiting on decode"
        )
        print(f"Dwell in the inflight queue, {phase.name} ({phase.seconds:g} s; {note})")
        for line in histogram(phase.dwells, value):
            print(f"  {line}")
    if report.proposal is not None:
        head = "Proposed" if value is not None else "No proposal"
        print(f"{head}: {report.proposal.reason}")
    for proof in report.proofs:
        word = "fired" if proof.ok else "NOT proved"
        print(
            f"Watchdog of {proof.prefill} ({proof.prefill} -> {proof.decode}, {proof.test_value:g} s): {word}"
        )
        for check in proof.checks:
            print(f"  {'ok' if check.ok else 'NO'}  {check.name}: {check.detail}")
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
    print(f"Evidence: {report.evidence}")
