"""pdctl drill list|run|arm|disarm"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import LockWait, confirm, session
from pdctl.exits import Exit
from pdctl.flows.changing import changing
from pdctl.flows.drill import points
from pdctl.flows.drill.catalogue import DRILLS, chosen
from pdctl.flows.drill.run import run as play
from pdctl.remote.journal import Call
from pdctl.render.drill import show_board, show_list
from pdctl.render.table import show_json

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Faults on a fleet whose profile is drillable, and the fault points of its engines.",
)
EngineName = Annotated[str, typer.Argument(help="An engine of the fleet file.")]


@app.command("list")
def list_drills(ctx: typer.Context) -> None:
    """The drills, the fault points of engines, and what is armed now."""
    s = session(ctx)
    with s.context() as context:
        bundled = [e for e in context.fleet.engines() if e.kind == "bundled"]
        armed, silent = points.all_armed(context, bundled)
    if s.json:
        rows = [{"name": n, "role": role, "does": does} for n, (role, does) in points.FAULTS.items()]
        drills = [
            {"name": d.name, "does": d.does, "codes": d.codes, "within_s": d.within} for d in DRILLS.values()
        ]
        found = {"armed": [vars(p) for p in armed], "silent": silent}
        show_json({"schema": 1, "drills": drills, "faults": rows} | found)
    else:
        show_list(armed, silent)


@app.command()
def run(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Drills of `pdctl drill list`.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every drill, one after the other.")] = False,
    on: Annotated[
        str,
        typer.Option(metavar="ENGINE", help="On an edge of this engine, and on it where one is struck."),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    really: Annotated[
        bool, typer.Option("--yes-really", help="Also on a fleet whose profile is not marked drillable.")
    ] = False,
    lock_wait: LockWait = 0.0,
) -> Exit:
    """Play drills: inject, see it act, see what finds it and how soon, undo, see the fleet serve.

    What is changed is written down before it is changed; Ctrl-C undoes it, and after a crash the next run
    does. Exit code 3 when something was not found in time, not undone, or cost a request that it should not.
    """
    s = session(ctx)
    drills = chosen(names or [], every)
    with s.context() as context:
        words = ["drill", "run", *(["--all"] if every else names or []), *(["--on", on] if on else [])]
        again = (*words, "--yes", *(["--yes-really"] if really else []))
        with changing(context, Call(" ".join(words), again), lock_wait) as journal:
            board = play(context, drills, on, really, lambda question: confirm(question, yes))
            journal.note("drill", board=board.document(), **{row.name: row.said for row in board.rows})
            if board.stopped:
                journal.ends("interrupted", board.stopped)
            elif not board.ok:
                wrong = [row for row in board.rows if not row.ok]
                journal.ends("failed", "; ".join(f"{row.name}: {row.wrong[0]}" for row in wrong))
    if s.json:
        show_json(board.document())
    else:
        show_board(board)
    return board.exit


@app.command()
def arm(
    ctx: typer.Context,
    engine: EngineName,
    fault: Annotated[str, typer.Argument(help="A fault point of `pdctl drill list`.")],
    count: Annotated[int, typer.Option(min=0, help="How often it acts; 0 until disarmed.")] = 1,
    value: Annotated[float, typer.Option(min=0, help="Seconds, where the fault takes some.")] = 0.0,
) -> None:
    """Arm one fault point on one engine."""
    s = session(ctx)
    with s.context() as context:
        what = f"drill arm {engine} {fault} count={count}"
        with changing(context, Call(what)):
            points.arm(context, context.fleet.engine(engine), fault, count, value)
    if s.json:
        show_json({"schema": 1, "engine": engine, "armed": fault, "count": count, "value": value})
    else:
        print(f"{fault} armed on {engine}, " + (f"for {count} of its hits" if count else "until disarmed"))


@app.command()
def disarm(ctx: typer.Context, engine: EngineName) -> None:
    """Disarm every fault point of one engine."""
    s = session(ctx)
    with s.context() as context, changing(context, Call(f"drill disarm {engine}")):
        names = points.disarm(context, context.fleet.engine(engine))
    if s.json:
        show_json({"schema": 1, "engine": engine, "disarmed": names})
    else:
        print(f"{engine}: " + (f"{', '.join(names)} disarmed" if names else "nothing was armed"))
