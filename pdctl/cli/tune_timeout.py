"""pdctl tune-timeout"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import LockWait, confirm, session
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.flows.changing import changing
from pdctl.flows.tune.run import Options, run
from pdctl.remote.journal import Call
from pdctl.render.table import show_json
from pdctl.render.tune import show


def command(
    ctx: typer.Context,
    measure_only: Annotated[
        bool, typer.Option("--measure-only", help="Measure and propose, no drill.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Only see the watchdog fire, and record it for the present value."),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="After the proof, write the value and set it live.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="Length of each measured phase.")] = 20.0,
    lock_wait: LockWait = 0.0,
) -> Exit:
    """Choose the inflight timeout from measured dwell, and see it fire before it is trusted.

    Sends load of its own through the router, first a few agents, then more than decode has slots. The
    drill stalls one transfer per prefill with a short value; healthy requests run meanwhile.
    """
    if measure_only and (verify or apply):
        raise ConfigError("bad_flags", "--measure-only neither verifies nor applies.", "Leave one out.")
    if verify and apply:
        raise ConfigError("bad_flags", "--verify is for the value in force; --apply measures a new one.")
    s = session(ctx)
    with s.context() as context:
        options = Options(seconds, measure_only, verify, apply, lambda question: confirm(question, yes))
        chosen = {"--measure-only": measure_only, "--verify": verify, "--apply": apply, "--yes": yes}
        words = [word for word, given in chosen.items() if given]
        again = ("tune-timeout", *words, "--seconds", f"{seconds:g}")
        with changing(context, Call(" ".join(["tune-timeout", *words]), again), lock_wait) as journal:
            report = run(context, options)
            journal.note("tune-timeout", ok=report.ok, applied=report.applied, evidence=report.evidence)
            if not report.ok:
                journal.ends("failed", f"not proved, see {report.evidence}")
    if s.json:
        show_json(report.document())
    else:
        show(report)
    return report.exit
