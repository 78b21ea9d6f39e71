"""diagnose --watch: again and again, in full when the verdict changes and in one line when it does not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import NoReturn

from pdctl.diagnose.report import Report, document
from pdctl.diagnose.rule import Severity
from pdctl.diagnose.words import count
from pdctl.render.diagnose import show

Key = tuple[str, tuple[tuple[str, str], ...]]


def _key(report: Report) -> Key:
    """What has to change for the verdict to be news: what leads, and which findings there are of whom."""
    found = sorted((p.finding.code, p.finding.subject) for p in report.verdict.findings)
    return report.verdict.status, tuple(found)


def watch(look: Callable[[], Report], every: float, as_json: bool, level: Severity) -> NoReturn:
    """Until Ctrl-C, which unwinds. As JSON one document a line, each round."""
    before: Key | None = None
    while True:
        began = time.monotonic()
        report = look()
        if as_json:
            print(json.dumps(document(report, level), separators=(",", ":")), flush=True)
        elif _key(report) != before:
            print(f"--- {time.strftime('%H:%M:%S')}")
            show(report)
        else:
            moving = sum(e.settled for e in report.ledger)
            about = f"{report.verdict.summary} ({count(moving, 'request')} moving)"
            print(f"{time.strftime('%H:%M:%S')} as before: {about}", flush=True)
        before = _key(report)
        time.sleep(max(0.0, every - (time.monotonic() - began)))
