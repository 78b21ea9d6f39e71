"""A case: a bundle put together by hand from a report's facts, and the verdict that is right for it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pdctl.diagnose.report import Report
from pdctl.diagnose.runner import FAILED
from pdctl.flows.diagnose import judge_bundle

ROOT = Path(__file__).parent / "bundles"


@dataclass(frozen=True)
class Case:
    """expect.toml beside the bundle's documents.

    `leads` are the codes of which one must lead ([]: no finding above info). `never` are look-alikes' causes
    that must not lead. `certain` False: the answer is hypotheses with a next test, and `next_test` is a word
    of one. `says` are words of the leading summary or evidence.
    """

    name: str
    folder: Path
    leads: tuple[str, ...]
    never: tuple[str, ...]
    certain: bool
    says: tuple[str, ...]
    next_test: str

    def judge(self) -> Report:
        return _judged(self.folder)

    def faults(self, report: Report) -> list[str]:
        """What is wrong with the verdict, as sentences; empty when it is right."""
        verdict = report.verdict
        failed = [f"{s.code}: {s.reason}" for s in report.ran.skipped if s.reason.startswith(FAILED)]
        if failed:
            return failed
        if not self.leads:
            loud = [p.finding.code for p in verdict.findings if p.finding.severity.word != "info"]
            return [f"a false alarm: {', '.join(loud)}"] if loud else []
        if verdict.leading is None:
            return [f"nothing found; {' or '.join(self.leads)} should lead"]
        leader = verdict.findings[verdict.leading].finding
        faults = []
        if leader.code not in self.leads:
            faults.append(f"{leader.code} leads ({leader.summary}), {' or '.join(self.leads)} should")
        if leader.code in self.never:
            faults.append(f"{leader.code} is a look-alike's cause")
        if leader.certain != self.certain:
            faults.append(
                "it is sure of a cause that nobody knows" if leader.certain else "it is not certain"
            )
        told = "\n".join([leader.summary, leader.remedy, *leader.evidence])
        faults += [f"it does not say {word!r}" for word in self.says if word not in told]
        tests = "\n".join(h.test for h in leader.hypotheses)
        if self.next_test and self.next_test not in tests:
            faults.append(f"no next test says {self.next_test!r}")
        return faults


@cache
def _judged(folder: Path) -> Report:
    """Once a run: several tests look at every verdict."""
    return judge_bundle(folder)


def load(folder: Path) -> Case:
    expect = tomllib.loads((folder / "expect.toml").read_text())
    return Case(
        name=folder.relative_to(ROOT).as_posix(),
        folder=folder,
        leads=tuple(expect["leads"]),
        never=tuple(expect.get("never", ())),
        certain=expect.get("certain", True),
        says=tuple(expect.get("says", ())),
        next_test=expect.get("next_test", ""),
    )


def cases() -> list[Case]:
    return [load(path.parent) for path in sorted(ROOT.rglob("expect.toml"))]
