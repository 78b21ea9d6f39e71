"""pdctl diagnose"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.diagnose.report import document
from pdctl.diagnose.rule import Severity
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.fleet.names import nearest
from pdctl.flows.diagnose import diagnose, judge_bundle
from pdctl.render.diagnose import show
from pdctl.render.table import show_json

_LEVELS = {s.word: s for s in Severity}


def command(
    ctx: typer.Context,
    fail_on: Annotated[
        str, typer.Option(metavar="LEVEL", help="Exit 3 from this severity on: info, warning, error.")
    ] = "warning",
    bundle: Annotated[
        str | None, typer.Option("--from", metavar="BUNDLE", help="Judge a saved bundle; no fleet is needed.")
    ] = None,
) -> Exit:
    """Say who holds which request, since when and why; what is wrong, and the command that mends it."""
    if fail_on not in _LEVELS:
        raise ConfigError("bad_level", f"--fail-on {fail_on} is not a severity.", nearest(fail_on, _LEVELS))
    level = _LEVELS[fail_on]
    s = session(ctx)
    if bundle is not None:
        report = judge_bundle(Path(bundle))
    else:
        with s.context() as context:
            report = diagnose(context)
    if s.json:
        show_json(document(report, level))
    else:
        show(report)
    return report.exit(level)
