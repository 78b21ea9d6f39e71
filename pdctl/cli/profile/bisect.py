"""pdctl profile bisect"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import typer

from pdctl.cli.session import LockWait, Session, confirm, session
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.flows.bisect.checks import Check, CommandCheck, LoadCheck, TokenCheck
from pdctl.flows.bisect.report import BisectReport
from pdctl.flows.bisect.run import Options, prepare, run
from pdctl.flows.bisect.search import Rules
from pdctl.flows.bisect.state import State
from pdctl.flows.bisect.trial import starter
from pdctl.flows.changing import changing
from pdctl.flows.load.plan import Shape
from pdctl.remote.journal import Call
from pdctl.render.bisect import show, show_plan
from pdctl.render.table import show_json

Makes = Callable[[State], Check]
# Longest wait for one answer of the token check, seconds.
ANSWER = 120.0

Good = Annotated[str, typer.Argument(help="The profile that passes the check.")]
Bad = Annotated[str, typer.Argument(help="The profile that fails it.")]
Kind = Annotated[
    Literal["load", "tokens"],
    typer.Option(help="load: every request of a load succeeds. tokens: greedy answers stay as under GOOD."),
]
Shell = Annotated[
    str | None,
    typer.Option(
        metavar="CMD", help="Instead: a shell command; exit 0 is good, 125 cannot tell, anything else bad."
    ),
]
Timeout = Annotated[float, typer.Option(min=0.1, help="A command that takes longer has failed, seconds.")]
Agents = Annotated[int, typer.Option(min=1, max=256, help="Agents of the load.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds of each agent.")]
Seconds = Annotated[float, typer.Option(min=1, help="No round of the load begins later.")]
Tokens = Annotated[int, typer.Option(min=1, help="Tokens of an answer.")]
Context = Annotated[int, typer.Option(min=64, help="The longest prompts, in tokens (about).")]
Error = Annotated[
    float, typer.Option(min=1e-6, max=0.5, help="The allowed probability that the answer is wrong.")
]
Steady = Annotated[
    bool, typer.Option("--deterministic", help="The check never wavers: one run settles a mix.")
]
MaxRestarts = Annotated[
    int | None, typer.Option(min=0, help="Stop before more restarts than this, the way back included.")
]
MaxSeconds = Annotated[float | None, typer.Option(min=1, help="Begin no run of the check after this.")]
ShowPlan = Annotated[bool, typer.Option("--plan", help="Show what differs and what it would take.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the same bisect that did not end.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds for an engine to start.")]


def command(
    ctx: typer.Context,
    good: Good,
    bad: Bad,
    check: Kind = "load",
    check_command: Shell = None,
    check_timeout: Timeout = 300.0,
    agents: Agents = 4,
    rounds: Rounds = 4,
    seconds: Seconds = 30.0,
    tokens: Tokens = 16,
    context: Context = 1024,
    error: Error = 0.05,
    deterministic: Steady = False,
    max_restarts: MaxRestarts = None,
    max_seconds: MaxSeconds = None,
    plan: ShowPlan = False,
    resume: Resume = False,
    yes: Yes = False,
    wait: Wait = 600.0,
    lock_wait: LockWait = 0.0,
) -> Exit:
    """Find the smallest set of differing values that makes a check fail, by trying mixes on the fleet.

    GOOD must pass and BAD must fail. Values that can be set live are; the others take a co-restart of the
    cells they reach, only where they change from one mix to the next. A mix whose engines do not start counts
    as bad if BAD does not start either, else it cannot tell and is stepped around; one that starts and does
    not serve is bad. The fleet has its old values again at the end, and after a crash as soon as this, or
    `pdctl resume`, runs again.
    """
    s = session(ctx)
    load, sizes = (agents, rounds, seconds), (tokens, context)
    makes, words = _check(check, check_command, check_timeout, load, sizes)
    words += ["--error", f"{error:g}", *(["--deterministic"] if deterministic else [])]
    budgets = (("--max-restarts", max_restarts), ("--max-seconds", max_seconds), ("--wait", wait))
    words += [word for name, value in budgets if value is not None for word in (name, f"{value:g}")]
    options = Options(Rules(error=error, steady=deterministic), max_restarts, max_seconds, resume)
    if plan:
        with s.context() as planning:
            made = prepare(planning, good, bad, makes, options, starter(wait)).report
        show_json(made.document()) if s.json else show_plan(made)
        return Exit.OK
    call = Call(f"profile bisect {good} {bad}", ("profile", "bisect", good, bad, *words))
    return _search(s, call, makes, options, (yes, wait, lock_wait))


def _search(s: Session, call: Call, makes: Makes, options: Options, how: tuple[bool, float, float]) -> Exit:
    """`how`: without asking, seconds for an engine to start and for the lock."""
    yes, wait, lock_wait = how
    good, bad = call.again[2:4]
    with s.context() as context, changing(context, call, lock_wait) as journal:

        def planned(report: BisectReport) -> None:
            if not s.json:
                show_plan(report)
            said = report.forecast
            more = f" ({said.two.restarts} if two values are to blame)" if said.two else ""
            confirm(f"Try them on {context.fleet.name}, with up to {said.restarts} restarts{more}?", yes)
            # What was agreed to once is not asked again, and what was learned is not thrown away.
            journal.resumable(*call.again, "--yes", "--resume")

        report = run(context, good, bad, makes, options, starter(wait), planned)
        found = {"result": report.summary, "evidence": report.evidence}
        journal.note("bisect", **found, restart_s=report.restart_s)
        if report.answer is None:
            journal.ends("interrupted", report.stopped)
    show_json(report.document()) if s.json else show(report)
    return report.exit


def _check(
    name: str,
    shell: str | None,
    timeout: float,
    load: tuple[int, int, float],
    sizes: tuple[int, int],
) -> tuple[Makes, list[str]]:
    """The check, and the words that ask for it again."""
    if shell is not None:
        if not shell.strip():
            raise ConfigError("bad_check", "--check-command is empty.", "Pass a command, or --check.")
        words = ["--check-command", shell, "--check-timeout", f"{timeout:g}"]
        return lambda state: CommandCheck(shell, timeout), words
    (agents, rounds, seconds), (tokens, context) = load, sizes
    words = ["--check", name, "--tokens", str(tokens), "--context", str(context)]
    if name == "tokens":
        return lambda state: TokenCheck(state.answers, context, tokens, ANSWER), words
    shape = Shape(agents, seconds, rounds, tokens, context=context, long=0.25)
    words += ["--agents", str(agents), "--rounds", str(rounds), "--seconds", f"{seconds:g}"]
    return lambda state: LoadCheck(shape), words
