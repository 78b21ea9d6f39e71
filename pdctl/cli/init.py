"""pdctl init"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.errors import ConfigError
from pdctl.fleet.load import fleet_path
from pdctl.flows.init import Wanted, init_fleet, remote
from pdctl.flows.model import known_models, model_path
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    local: Annotated[bool, typer.Option("--local", help="Engines on this machine.")] = False,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="SSH[=ADDRESS]", help="A host over SSH, and where peers reach it; repeatable."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="A known model's name, a folder or a GGUF file.")
    ] = "smollm2-135m",
    tp: Annotated[int, typer.Option(min=1, help="Tensor-parallel ranks of each engine.")] = 1,
    prefills: Annotated[int, typer.Option(min=1, help="Prefill engines of the cell.")] = 1,
    decodes: Annotated[int, typer.Option(min=1, help="Decode engines of the cell.")] = 1,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    profile: Annotated[str, typer.Option(help="default, production or drill.")] = "default",
    drill: Annotated[
        bool, typer.Option("--drill", help="Let faults be armed; not for real traffic.")
    ] = False,
    name: Annotated[str, typer.Option(help="The fleet's name.")] = "demo",
    repair: Annotated[bool, typer.Option("--repair", help="Only make what is missing.")] = False,
) -> None:
    """Write a commented fleet file, profiles and a token; nothing that exists is overwritten."""
    s = session(ctx)
    path = fleet_path(s.fleet_file)
    if not repair and local == bool(host):
        raise ConfigError(
            "no_hosts", "Where shall the engines run?", "Pass --local, or --host for each host."
        )
    hosts = tuple(remote(text) for text in host or ())
    wanted = Wanted(name, model, profile, tp, prefills, decodes, dtype, drill, hosts)
    written = init_fleet(path, wanted, repair)
    fleet = s.fleet()
    pull = not host and model in known_models() and not (model_path(model) / "config.json").exists()
    first = [f"pdctl model pull {model}"] if pull else ["pdctl check"] if host else []
    following = [*first, "pdctl deploy"]
    if s.json:
        show_json({"schema": 1, "fleet": str(path), "written": written, "next": following})
        return
    for item in written:
        print(f"wrote {path.parent / item}")
    print(f"router: {fleet.router.url}")
    print(f"next: {', then '.join(following)}")
