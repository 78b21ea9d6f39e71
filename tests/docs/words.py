"""pdctl/cli/words/table.json: every verb with its options and what its arguments are, for completion."""

from __future__ import annotations

import json
import typing
from typing import Any

import typer.main

from pdctl.cli.app import root
from pdctl.flows.drill.catalogue import DRILLS
from pdctl.flows.drill.points import FAULTS

# By verb and parameter: a kind of pdctl/cli/words/names.py, choices with | between, ":files", or "" for what
# has no names that are known here.
KINDS = {
    "adopt sources": ":files",
    "adopt host": "",
    "adopt out": ":files",
    "adopt ssh": "",
    "deploy limit": "cell or host",
    "rollback limit": "cell or host",
    "rollback id": "deployment",
    "restart name": "unit or cell",
    "relink one": "engine",
    "relink other": "engine",
    "resume run": "run",
    "history run": "run",
    "history host": "host",
    "explain code": "rule",
    "logs unit": "unit",
    "drill run names": "|".join(DRILLS),
    "drill run on": "engine",
    "drill arm engine": "engine",
    "drill arm fault": "|".join(FAULTS),
    "drill disarm engine": "engine",
    "profile show name": "profile",
    "profile check name": "profile",
    "profile diff one": "operand",
    "profile diff other": "operand",
    "profile set profile": "profile",
    "profile set words": "assignment",
    "profile set side": "prefill|decode|both|router",
    "profile bisect good": "profile",
    "profile bisect bad": "profile",
    "init host": "",
    "init profile": "default|production|drill",
    "init dtype": "float32|bfloat16",
    "check fail_on": "warn|fail",
    "diagnose fail_on": "info|warning|error",
    "load fail_on": "failed|hung|never",
    "diagnose saved": ":files",
    "diagnose bundle": ":files",
    "diagnose page": ":files",
    "load traced": ":files",
    "load record": ":files",
}
# By verb and option: what the arguments are once it is there.
WITH: dict[str, list[str]] = {
    "restart --co": ["cell"],
    "rollback --list": [],
    "history --host": [],
    "history --prune": [],
    "drill run --all": [],
}
# Arguments that no local file names: ids of requests, models.
FREE = {"abort id", "incidents id", "model pull name"}


def table() -> dict[str, Any]:
    command = typer.main.get_command(root)
    return {**_node(command, ""), "options": {"--fleet": ":files", "--json": None, "--help": None}}


def words() -> str:
    return json.dumps(table(), indent=1, ensure_ascii=False)


def _node(command: Any, path: str) -> dict[str, Any]:
    options = [p for p in command.params if p.param_type_name == "option" and not getattr(p, "hidden", False)]
    names = {n: _kind(path, p) for p in options for n in (*p.opts, *p.secondary_opts)}
    names = {n: k for n, k in names.items() if n not in ("-h", "--help", "--fleet", "--json")}
    says = {n: _short(p.help) for p in options for n in (*p.opts, *p.secondary_opts) if n in names}
    node: dict[str, Any] = {"says": _short(command.help)}
    if names:
        node |= {"options": names, "help": says}
    arguments = [_kind(path, p) for p in command.params if p.param_type_name == "argument"]
    if arguments:
        node["arguments"] = arguments
        if any(p.nargs == -1 for p in command.params if p.param_type_name == "argument"):
            node["many"] = True
    if instead := {n: WITH[f"{path} {n}"] for n in names if f"{path} {n}" in WITH}:
        node["with"] = instead
    if hasattr(command, "list_commands"):
        context = command.context_class(command)
        below = {n: command.get_command(context, n) for n in command.list_commands(context)}
        node["verbs"] = {n: _node(c, f"{path} {n}".strip()) for n, c in below.items() if not c.hidden}
    return node


def _kind(path: str, parameter: Any) -> str | None:
    if getattr(parameter, "is_flag", False):
        return None
    found = KINDS.get(f"{path} {parameter.name}")
    if found is not None:
        return found
    annotation = parameter.type_descriptor.annotation
    choices = typing.get_args(annotation) if typing.get_origin(annotation) is typing.Literal else ()
    return "|".join(map(str, choices))


def _short(text: str | None) -> str:
    """The first sentence, in one line."""
    line = " ".join((text or "").split("\n\n")[0].split())
    return line.partition(". ")[0].removesuffix(".")[:100]
