"""`python -m tests.faults.page RESULTS PAGE` writes docs/faults.md from the results of a run.

Every number on the page was measured by that run. A row without a result says so.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.machine import facts
from tests.faults.matrix import NOT_SHOWN, ROWS

NOTE = "<!-- Written by `make faults`. Run it again, do not edit this page. -->"
HEAD = [
    *("Fault", "Where", "Evidence that it happened", "Noticed, s", "Whole again, s", "Requests"),
    *("Failed, typed", "Hung", "Wrong", "Pages held", "Starts", "Verdict"),
]
LEGEND = """\
Each cell strikes a pair under steady greedy load whose right answers are a single engine's, without prefix
reuse. The pair runs as it ships, prefix reuse included, but for shorter deadlines. *Evidence*: what shows
that the fault took effect; a cell without it fails, and the controls at the end, aimed at a wrong target,
have to fail so. *Noticed*: from the injection to the first sign that anybody gives, and which. *Whole
again*: from the injection until answers are right and none fails any more. *Failed, typed*: requests that
ended with an error code; *cut off*, without one, is for clients of a router that was killed. *Hung*: past
every deadline. *Wrong*: answers that differ from the single engine's. *Pages held*: not free on all engines
together once the load has ended. *Starts*: processes started to recover, each by what a supervisor or an
operator does. "-" is not applicable."""


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [
        "| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in line) + " |" for line in lines
    ]


def line(found: dict[str, Any]) -> list[str]:
    ends = sorted(found["failed"].items()) + ([("cut off", found["broken"])] if found["broken"] else [])
    failed = ", ".join(f"{count} {code}" for code, count in ends) or "0"
    noticed = "-" if found["detect_s"] is None else f"{found['detect_s']:.3g} ({found['detect_by']})"
    recover = "-" if found["recover_s"] is None else f"{found['recover_s']:.1f}"
    problems = found["problems"] or ([] if found["evidence"] else ["no evidence"])
    verdict = f"**failed**: {'; '.join(problems)}" if problems else "passed"
    return [
        *(found["fault"], found["where"], found["evidence"] or "none", noticed, recover),
        *(str(found["requests"]), failed, str(found["hung"]), str(found["wrong"])),
        *(str(sum(found["held"].values())) if found["held"] else "-", str(found["restarts"]), verdict),
    ]


def page(results: list[dict[str, Any]], machine: dict[str, Any]) -> str:
    """The whole page; the last result of a cell counts."""
    cells = list({(r["row"], r["fault"], r["where"]): r for r in results}.values())
    passed = [c for c in cells if c["row"] and c["evidence"] and not c["problems"]]
    struck = [c for c in cells if c["row"]]
    libraries = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items())
    out = ["# The fault matrix", "", NOTE, "", *LEGEND.splitlines(), ""]
    out += [
        f"{len(passed)} of {len(struck)} cells passed, "
        f"{sum(c['hung'] for c in struck)} requests hung, {sum(c['wrong'] for c in struck)} answers wrong, "
        f"of {sum(c['requests'] for c in struck)}.",
        "",
        f"Run on {time.strftime('%Y-%m-%d', time.gmtime())}: {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, {machine['cpu']}, Linux {machine['kernel'].partition('-')[0]}, "
        f"Python {machine['python']}, {libraries}. Everything runs on those cores, the clients too. "
        f"Model: {Path(os.environ.get('PDCTL_TEST_MODEL', 'smollm2-135m')).name}, float32.",
        "",
    ]
    for number, name in ROWS.items():
        rows = [line(c) for c in cells if c["row"] == number]
        out += [f"## {number}. {name}", ""]
        out += [*table(HEAD, rows), ""] if rows else ["Not part of this run.", ""]
        out += [NOT_SHOWN[number], ""] if number in NOT_SHOWN else []
    out += ["## Controls", "", "The same faults aimed at a process or an engine that is not the target.", ""]
    controls = [
        [c["fault"].removeprefix("control: "), c["evidence"], "rejected"] for c in cells if c["row"] == 0
    ]
    out += [*table(["Injected", "What the frame says", "Verdict"], controls), ""]
    return "\n".join(out).rstrip() + "\n"


def main(results: str, target: str) -> None:
    found = [json.loads(text) for text in Path(results).read_text().splitlines()]
    Path(target).write_text(page(found, facts()))
    print(f"{target}: {len(found)} results")


if __name__ == "__main__":
    main(*sys.argv[1:])
