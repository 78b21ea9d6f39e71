"""pdctl drill list|arm|disarm"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.flows import drill
from pdctl.flows.changing import changing
from pdctl.remote.journal import Call
from pdctl.render.table import show_json, show_table

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Fault points of a drillable fleet (drill = true under [fleet]).",
)
EngineName = Annotated[str, typer.Argument(help="An engine of the fleet file.")]


@app.command("list")
def list_points(ctx: typer.Context) -> None:
    """What can be injected, and what is armed now."""
    s = session(ctx)
    with s.context() as context:
        points = [p for engine in context.fleet.engines() for p in drill.armed(context, engine)]
    if s.json:
        rows = [{"name": n, "role": role, "does": does} for n, (role, does) in drill.FAULTS.items()]
        show_json({"schema": 1, "faults": rows, "armed": [vars(p) for p in points]})
        return
    show_table(("fault", "on", "what it does"), [(n, r, d) for n, (r, d) in drill.FAULTS.items()])
    armed = [(p.engine, p.name, p.count or "until disarmed", f"{p.value:g}", p.hits) for p in points]
    show_table(("engine", "armed", "count", "value s", "hits"), armed)


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
            drill.arm(context, context.fleet.engine(engine), fault, count, value)
    if s.json:
        show_json({"schema": 1, "engine": engine, "armed": fault, "count": count, "value": value})
    else:
        print(f"{fault} armed on {engine}, " + (f"for {count} of its hits" if count else "until disarmed"))


@app.command()
def disarm(ctx: typer.Context, engine: EngineName) -> None:
    """Disarm every fault point of one engine."""
    s = session(ctx)
    with s.context() as context, changing(context, Call(f"drill disarm {engine}")):
        names = drill.disarm(context, context.fleet.engine(engine))
    if s.json:
        show_json({"schema": 1, "engine": engine, "disarmed": names})
    else:
        print(f"{engine}: " + (f"{', '.join(names)} disarmed" if names else "nothing was armed"))
