"""Play every row on one running fleet, and print what `pdctl diagnose` made of it."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.cases.live import people, processes, transfers
from tests.cases.live.fleet import START, Fleet, Said, make, unmake
from tests.cases.live.row import ROWS, Row, Skip

_MODULES = (processes, transfers, people)


def judged(row: Row, said: Said) -> str:
    """What is wrong with the verdict; "" when it is right."""
    if not row.codes:
        loud = ", ".join(f"{f['code']} of {f['subject']}" for f in said.loud)
        return f"a false alarm: {loud}" if loud else ""
    if not said.loud:
        return f"nothing found; {' or '.join(row.codes)} should lead"
    first = said.findings[0]
    if first["code"] not in row.codes:
        return (
            f"{first['code']} of {first['subject']} leads ({first['summary']}), not {' or '.join(row.codes)}"
        )
    if row.subject and first["subject"] != row.subject:
        return f"{first['code']} is of {first['subject']}, not of {row.subject}"
    if row.says not in first["summary"]:
        return f"it does not say {row.says!r}: {first['summary']}"
    attached = {f["code"] for f in said.findings if f["caused_by"] == 0}
    if missing := [code for code in row.effects if code not in attached]:
        return f"{', '.join(missing)} does not hang on it"
    return ""


def healthy(fleet: Fleet) -> None:
    """Wrong when something is told above info of a fleet that was mended."""
    said: list[str] = []

    def calm() -> bool:
        loud = fleet.diagnose().loud
        said[:] = [f"{f['code']} of {f['subject']}: {f['summary']}" for f in loud]
        return not loud

    try:
        fleet.wait("healthy again", calm, 90.0)
    except AssertionError as error:
        raise AssertionError(f"{error}: {'; '.join(said)}") from None


def play(fleet: Fleet, row: Row) -> tuple[str, str]:
    """ok, BAD or skip, and what is to be told of it."""
    fault = row.fault(fleet)
    try:
        evidence = next(fault)
    except Skip as skip:
        return "skip", str(skip)
    try:
        said = fleet.diagnose()
        wrong = judged(row, said)
        led = f"{said.findings[0]['code']} {said.findings[0]['subject']}" if said.findings else "healthy"
        text = f"{led:<32} {said.seconds:4.1f} s ({said.document['seconds']:.1f})  {evidence}"
        return ("BAD", f"{text}; {wrong}") if wrong else ("ok", text)
    finally:
        next(fault, None)


def _mended(fleet: Fleet) -> str:
    try:
        fleet.clear()
        healthy(fleet)
    except AssertionError as error:
        return f"afterwards {error}"
    return ""


def main(only: Sequence[str] = ()) -> int:
    """0 when every row that this machine can play is right; `only` are words of rows' names."""
    rows = [r for r in ROWS if not only or any(word in r.name for word in only)]
    nothing = [word for word in only if not any(word in r.name for r in ROWS)]
    if nothing:
        print(
            f"no row has {' or '.join(nothing)} in its name; rows: {', '.join(r.name for r in ROWS)}",
            file=sys.stderr,
        )
        return 2
    folder = Path(tempfile.mkdtemp(prefix="pdctl-live-"))
    # Also where whoever started this ignores it: an interrupted run takes its fleet down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    counts = {"ok": 0, "BAD": 0, "skip": 0}
    fleet = make(folder)
    try:
        fleet.wait("the router counts every engine as ready", fleet.ready, START)
        healthy(fleet)
        for row in rows:
            try:
                mark, text = play(fleet, row)
            except Exception as error:  # a row that broke is BAD; the next one begins on a mended fleet
                mark, text = "BAD", f"{type(error).__name__}: {error}"
                traceback.print_exc(file=sys.stderr)
            late = "" if mark == "skip" else _mended(fleet)
            if late:
                mark, text = "BAD", f"{text}; {late}"
                fleet.pdctl("deploy", "--yes", timeout=2 * START, check=False)
                fleet.pdctl("restart", "--co", "--yes", timeout=2 * START, check=False)
            counts[mark] += 1
            print(f"{mark:<4} {row.name:<40} {text}", flush=True)
    finally:
        unmake(fleet)
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{counts['ok']} of {counts['ok'] + counts['BAD']} live faults named right, {counts['skip']} skipped"
    )
    return 1 if counts["BAD"] else 0
