"""What is true behind an interrupt of tune-timeout, by the files that it leaves and not by how far it was."""

from __future__ import annotations

from collections.abc import Callable

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Fleet
from pdctl.fleet.profile import load_profile
from pdctl.flows.recovery import record
from pdctl.flows.tune.report import TuneReport, kept


def to_its_end(fleet: Fleet, report: TuneReport, go: Callable[[], None]) -> TuneReport:
    """`go`, which fills in `report`. Behind an interrupt, or a question that was answered with no, the report
    says what stands; while something is not put back nothing can be said, and it is raised on."""
    try:
        go()
    except (KeyboardInterrupt, PdctlError) as end:
        if not interrupts(end) or record.path(fleet).exists():
            raise
        stop(fleet, report)
        if not report.phases and not report.proofs:
            return report
    return kept(fleet, report)


def interrupts(end: BaseException) -> bool:
    return isinstance(end, KeyboardInterrupt) or getattr(end, "exit", None) is Exit.INTERRUPTED


def stop(fleet: Fleet, report: TuneReport) -> None:
    """Say in `report` that it was stopped, and what stands; no recovery record may be left."""
    values = load_profile(fleet.paths.profiles, report.profile).values
    changed = [c for c in report.changes if c.old != c.new]
    served = report.applied
    report.applied = bool(changed) and all(
        c.env in values and float(values[c.env].value) == c.new for c in changed
    )
    seen = [v.verified.evidence for v in values.values() if v.is_verified and v.verified is not None]
    report.verified = report.evidence != "" and report.evidence in seen
    if not report.applied:
        report.stopped = f"engines and profile {report.profile} have the values that they had before"
        return
    said = f"engines and profile {report.profile} have all of the new values"
    if report.verified:
        report.stopped = f"{said}, which were seen to fire; nothing is left to do"
        return
    left = [] if served else ["`pdctl deploy` records that they serve"]
    left.append("`pdctl tune-timeout --verify` sees them fire")
    report.stopped = f"{said}; {', '.join(left)}"
