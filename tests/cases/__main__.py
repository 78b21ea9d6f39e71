"""The scoreboard: every case, what leads, whether it is right; with --live, faults on a running fleet too."""

from __future__ import annotations

import argparse
import sys

from tests.cases.case import cases
from tests.cases.live.board import main as live


def bundles() -> int:
    right = 0
    all_cases = cases()
    for case in all_cases:
        report = case.judge()
        faults = case.faults(report)
        right += not faults
        leader = report.verdict.findings[0].finding.code if report.verdict.leading is not None else "-"
        print(f"{'ok ' if not faults else 'BAD'} {case.name:<28} {leader:<7} {'; '.join(faults)}")
    print(f"{right} of {len(all_cases)} cases judged right", flush=True)
    return 0 if right == len(all_cases) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("--live", nargs="*", metavar="WORD", help="play rows on a running fleet; WORD picks")
    live_rows = parser.parse_args().live
    found = bundles() if not live_rows else 0
    return (live(live_rows) or found) if live_rows is not None else found


if __name__ == "__main__":
    sys.exit(main())
