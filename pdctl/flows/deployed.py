"""What of this fleet was deployed: units that were, and when a deploy last went through."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from pdctl.errors import ConfigError
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.flows.context import Context
from pdctl.remote.journal_read import list_runs, noted

_ID = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-")


def last_deploy(fleet: Fleet) -> str:
    """By this operator's journal, written as the dates of values are; "" when it has none: others' deploys
    are in theirs. A deploy inside another run counts by its id, which is made when the files are read; a
    rollback brings what they do not say."""
    journal = fleet.paths.journal
    runs = [r for r in list_runs(journal) if r.state == "done" and r.command.split()[:1] == ["deploy"]]
    found = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.started)) for run in runs[:1]]
    made = (note["id"] for command, note in noted(journal, "deployment") if _by_the_files(command))
    found += [m.expand(r"\1-\2-\3T\4:\5:\6Z") for id in made if (m := _ID.match(id))][:1]
    return max(found, default="")


def last_values(fleet: Fleet) -> dict[str, dict[str, str]]:
    """Unit -> variables and arguments that this operator's last deploy gave it, secrets left out."""
    found: dict[str, dict[str, str]] = {}
    for command, note in noted(fleet.paths.journal, "deployment"):
        for given in note.get("values", ()) if _by_the_files(command) else ():
            # One without them is of a pdctl that noted no arguments: it cannot be compared with.
            for unit in given["units"] if "values" in given else ():
                found.setdefault(unit, given["values"])
    return found


def _by_the_files(command: str) -> bool:
    return command.split()[:1] != ["rollback"]


def refuse_undeployed(ctx: Context, units: Sequence[Engine | Router]) -> None:
    """ConfigError naming the first of `units` that no deploy has put on its host: it cannot be restarted."""
    for host in dict.fromkeys(u.host for u in units):
        mine = [u.name for u in units if u.host == host]
        for name, status in ctx.units(host).status(mine).items():
            if status.state == "missing":
                said = f"{name} was never deployed to {host}, so there is nothing to restart."
                raise ConfigError("not_deployed", said, "Run `pdctl deploy`.")
