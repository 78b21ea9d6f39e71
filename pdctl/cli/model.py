"""pdctl model"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.exits import Exit
from pdctl.flows.model import known_models, list_models, pull
from pdctl.render.progress import Progress
from pdctl.render.table import show_json, show_table

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Fetch a model, list what is cached.",
)


@app.command("pull")
def pull_command(
    ctx: typer.Context, name: Annotated[str, typer.Argument(help="A known model.")] = "smollm2-135m"
) -> None:
    """Fetch and convert a known model; one that is whole is left alone, a damaged one is repaired."""
    s = session(ctx)
    folder = pull(name, Progress(quiet=s.json).say)
    if s.json:
        show_json({"schema": 1, "name": name, "path": str(folder)})
    else:
        print(folder)


@app.command("list")
def list_command(
    ctx: typer.Context,
    check: Annotated[bool, typer.Option("--check", help="Read every byte against its digest.")] = False,
) -> Exit:
    """Known models, and what the cache has of each. With --check exit 3 when one is damaged."""
    found = list_models(check)
    damaged = [m.name for m in found if m.state == "damaged"]
    if session(ctx).json:
        rows = [{**vars(m), "path": str(m.path), "licence": known_models()[m.name].licence} for m in found]
        show_json({"schema": 1, "models": rows})
    else:
        rows_of_text = [
            (m.name, m.state, f"{m.size >> 20} MiB" if m.size else None, m.path, m.description) for m in found
        ]
        show_table(("model", "cached", "size", "path", "what"), rows_of_text)
        for name in damaged:
            print(f"`pdctl model pull {name}` repairs it.")
    return Exit.FINDINGS if check and damaged else Exit.OK
