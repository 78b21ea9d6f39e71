"""When a deploy of this fleet last went through, as this operator's journal has it."""

from __future__ import annotations

import time

from pdctl.fleet.model import Fleet
from pdctl.remote.journal_read import list_runs


def last_deploy(fleet: Fleet) -> str:
    """Written as the dates of values are; "" when the journal has none: others' deploys are in theirs."""
    for run in list_runs(fleet.paths.journal):
        if run.state == "done" and run.command.split()[:1] == ["deploy"]:
            return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.started))
    return ""
