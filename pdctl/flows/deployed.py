"""What of this fleet was deployed: units that were, and when a deploy last went through."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pdctl.errors import ConfigError
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.flows.context import Context
from pdctl.remote.journal_read import list_runs


def last_deploy(fleet: Fleet) -> str:
    """By this operator's journal, written as the dates of values are; "" when it has none: others' deploys
    are in theirs."""
    for run in list_runs(fleet.paths.journal):
        if run.state == "done" and run.command.split()[:1] == ["deploy"]:
            return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.started))
    return ""


def refuse_undeployed(ctx: Context, units: Sequence[Engine | Router]) -> None:
    """ConfigError naming the first of `units` that no deploy has put on its host: it cannot be restarted."""
    for host in dict.fromkeys(u.host for u in units):
        mine = [u.name for u in units if u.host == host]
        for name, status in ctx.units(host).status(mine).items():
            if status.state == "missing":
                said = f"{name} was never deployed to {host}, so there is nothing to restart."
                raise ConfigError("not_deployed", said, "Run `pdctl deploy`.")
