"""pdctl tune-timeout"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import LockWait, Session, confirm, session
from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.flows.changing import changing
from pdctl.flows.tune.measure import CONTEXT
from pdctl.flows.tune.proposal import FLOOR, TARGET, Wanted
from pdctl.flows.tune.report import Options, TuneReport, records
from pdctl.flows.tune.run import run
from pdctl.flows.tune.stopped import interrupts, stop
from pdctl.remote.journal import Call
from pdctl.render.table import show_json
from pdctl.render.tune import show

Limit = Annotated[
    float, typer.Option(min=1, help="Longest that a phase goes on for the transfers that the target takes.")
]
Target = Annotated[
    float,
    typer.Option(
        min=1e-6,
        max=0.5,
        help="Rate of healthy transfers that may dwell longer than what was measured, "
        "with 95 % confidence: 0.01 takes 299 transfers with decode saturated, 0.0001 takes 29956.",
    ),
]
Tokens = Annotated[
    int,
    typer.Option(
        "--context",
        min=160,
        max=1 << 20,
        help="Tokens of the longest conversations measured with: take those of the fleet's own traffic.",
    ),
]
Restarts = Annotated[
    int, typer.Option(min=0, max=20, help="Restart all cells so many times and measure behind each.")
]


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
    limit: Limit = 600.0,
    target: Target = TARGET,
    floor: Annotated[float, typer.Option(min=1, help="No value below it is proposed, seconds.")] = FLOOR,
    context: Tokens = CONTEXT,
    restarts: Restarts = 0,
    one_sided: Annotated[
        bool, typer.Option("--one-sided", help="With --restarts: decodes alone, not both sides.")
    ] = False,
    lock_wait: LockWait = 0.0,
) -> Exit:
    """Choose the inflight timeout from measured dwell, and see it fire before it is trusted.

    Sends load of its own through the router: one request at a time, a few agents, then more than decode has
    slots. The drill stalls one transfer per prefill with a short value; healthy requests run meanwhile.
    """
    _check(measure_only, verify, apply, restarts, one_sided)
    options = Options(
        seconds=seconds,
        limit=limit,
        context=context,
        wanted=Wanted(target=target, floor=floor),
        restarts=restarts,
        one_sided=one_sided,
        measure_only=measure_only,
        verify=verify,
        apply=apply,
        confirm=lambda question: _asked(question, yes),
    )
    return _run(session(ctx), options, _call(options, yes), lock_wait)


def _check(measure_only: bool, verify: bool, apply: bool, restarts: int, one_sided: bool) -> None:
    if one_sided and not restarts:
        said = "--one-sided says how to restart, and no restart is asked for."
        raise ConfigError("bad_flags", said, "Add --restarts N.")
    if measure_only and (verify or apply):
        raise ConfigError("bad_flags", "--measure-only neither verifies nor applies.", "Leave one out.")
    if verify and (apply or restarts):
        raise ConfigError("bad_flags", "--verify is for the value in force; it measures and applies nothing.")


def _call(options: Options, yes: bool) -> Call:
    """The words that a run is known by, without what goes without saying, and those that ask for it once
    more."""
    chosen = {
        "--measure-only": options.measure_only,
        "--verify": options.verify,
        "--apply": options.apply,
        "--yes": yes,
        "--one-sided": options.one_sided,
    }
    words = ["tune-timeout", *(word for word, given in chosen.items() if given)]
    numbers, usual = _numbers(options), _numbers(Options())
    known = [w for name, text in numbers.items() if text != usual[name] for w in (name, text)]
    again = [w for pair in numbers.items() for w in pair]
    return Call(" ".join([*words, *known]), (*words, *again))


def _numbers(options: Options) -> dict[str, str]:
    numbers = {
        "--seconds": options.seconds,
        "--limit": options.limit,
        "--context": options.context,
        "--target": options.wanted.target,
        "--floor": options.wanted.floor,
        "--restarts": options.restarts,
    }
    return {name: f"{number:.10g}" for name, number in numbers.items()}


def _asked(question: str, yes: bool) -> None:
    """Ctrl-C at a question is one anywhere else."""
    try:
        confirm(question, yes)
    except typer.Abort:
        raise KeyboardInterrupt from None


def _run(s: Session, options: Options, call: Call, lock_wait: float) -> Exit:
    report: TuneReport | None = None
    with s.context() as context:
        try:
            with changing(context, call, lock_wait) as journal:
                report = run(context, options)
                for what, said in records(report):
                    journal.note(what, **said)
                if report.stopped:
                    journal.ends("interrupted", report.stopped)
                elif not report.ok:
                    short = "too little was measured" if options.measure_only else "not proved"
                    journal.ends("failed", f"{short}, see {report.evidence}")
        except (KeyboardInterrupt, PdctlError) as end:
            # Everything is done, and what came of it is still to be told.
            if report is None or not interrupts(end):
                raise
            stop(context.fleet, report)
    if s.json:
        show_json(report.document())
    else:
        show(report)
    return report.exit
