"""pdctl check"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.fleet.names import nearest
from pdctl.flows.check.report import Level
from pdctl.flows.check.run import check
from pdctl.flows.check.transfer import DEADLINE
from pdctl.render.check import show
from pdctl.render.table import show_json

_LEVELS = {level.word: level for level in (Level.WARN, Level.FAIL)}


def command(
    ctx: typer.Context,
    transfer: Annotated[
        bool, typer.Option(help="Move real bytes over NIXL, each way, between the hosts of each edge.")
    ] = True,
    deadline: Annotated[float, typer.Option(min=1.0, help="Seconds for each of those transfers.")] = DEADLINE,
    fail_on: Annotated[str, typer.Option(metavar="LEVEL", help="Exit 3 from this on: warn, fail.")] = "warn",
) -> Exit:
    """Preflight: ports, clocks, disk, limits, Python, GPUs, NUMA, UCX, versions, addresses, MTU, a transfer.

    Changes nothing, and works before the first deploy as well as on a fleet that serves. Exit 3 when
    something is wrong, 5 when all that is wrong is a host that cannot be reached, 4 when it is both.
    """
    if fail_on not in _LEVELS:
        raise ConfigError("bad_level", f"--fail-on {fail_on} is not a level.", nearest(fail_on, _LEVELS))
    level = _LEVELS[fail_on]
    s = session(ctx)
    with s.context() as context:
        report = check(context, deadline if transfer else None)
    if s.json:
        show_json(report.document(level))
    else:
        show(report)
    return report.exit(level)
