"""The scoreboard: every case, what leads, whether it is right."""

from __future__ import annotations

import sys

from tests.cases.case import cases


def main() -> int:
    right = 0
    all_cases = cases()
    for case in all_cases:
        report = case.judge()
        faults = case.faults(report)
        right += not faults
        leader = report.verdict.findings[0].finding.code if report.verdict.leading is not None else "-"
        print(f"{'ok ' if not faults else 'BAD'} {case.name:<28} {leader:<7} {'; '.join(faults)}")
    print(f"{right} of {len(all_cases)} cases judged right")
    return 0 if right == len(all_cases) else 1


if __name__ == "__main__":
    sys.exit(main())
