"""What each generated page says. A page is a function that returns its Markdown."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer.main

from engine.core.settings import BY_NAME, ORDER, OTHER_ENV, SETTINGS, SWITCH
from pdctl import contracts
from pdctl.cli.app import root
from pdctl.exits import MEANING
from tests.docs.catalogue import catalogue
from tests.docs.kernels import kernels
from tests.docs.lock import engine_lock
from tests.docs.markdown import NOTE, table
from tests.docs.words import words

WHERE_OTHER = {
    "PD_FLEET_TOKEN_FILE": "A file (0600) with the fleet token: admin verbs and links ask for it.",
    "PD_DRILL_TOKEN_FILE": "A file (0600) with the drill token. Fault points exist only when it is set.",
    "PD_LOG_LEVEL": "Least level that is logged: debug, info, warning, error or critical. "
    "`env` of a unit in the fleet file sets it.",
}


def settings() -> str:
    """Every PD_* variable: default, range, who reads it, whether it changes live, and why it is there."""
    head = ["Variable", "Name", "Default", "Range", "Read by", "Live", "What it bounds"]
    rows = [
        [
            f"`{s.env}`",
            f"`{s.name}`",
            ("0 (off)", "1 (on)")[int(s.default)] if s.unit == SWITCH else f"{s.default:g} {s.unit}",
            "0 or 1" if s.unit == SWITCH else f"{s.low:g}..{s.high:g}",
            s.side,
            "yes" if s.live else "at start",
            s.reason,
        ]
        for s in SETTINGS
    ]
    order = [
        [f"`{BY_NAME[i].env}`", f"`{BY_NAME[o].env}`", f"{why[0].upper()}{why[1:]}."] for i, o, why in ORDER
    ]
    other = [[f"`{name}`", WHERE_OTHER.get(name, "")] for name in OTHER_ENV]
    return "\n".join(
        [
            "# Settings of an engine and of the router",
            "",
            NOTE,
            "A variable that is unknown, or whose value does not parse, stops the start with a sentence.",
            '"Live" values also change without a restart through `POST /admin/timeouts`; the value in force,',
            "its source and since when are in `timeouts` of `GET /v1/state`.",
            "",
            table(head, rows),
            "",
            "## Order",
            "",
            "The deadlines of one request must fire from the inside out. A start with two in the wrong order",
            "is refused, as far as one process knows both: what its environment says, and the defaults of",
            "what it reads itself.",
            "",
            table(["Must be below", "this one", "Why"], order),
            "",
            "## Variables that are not timeouts",
            "",
            table(["Variable", "What it is"], other),
            "",
        ]
    )


def contract_page() -> str:
    """Every document that crosses the border between pdctl and the engine, with the keys it must have."""
    out = ["# Contracts", "", NOTE]
    out += [
        "`pdctl` and the engine share no code. They meet in these documents; the schemas lie in",
        "`pdctl/contracts/` and tests check them against running engines. Keys may be added without a new",
        "schema number; a key listed here goes or changes its meaning only with a new one.",
        "",
    ]
    for name in sorted(contracts.NAMES):
        document = contracts.schema(name)
        out += [f"## {document.get('title', name)}", "", f"`pdctl/contracts/{name}.json`", ""]
        if document.get("description"):
            out += [str(document["description"]), ""]
        required = document.get("required", [])
        rows = [
            [f"`{key}`", "yes" if key in required else "no", _kind(value)]
            for key, value in document.get("properties", {}).items()
        ]
        out += [table(["Key", "Always there", "Kind"], rows), ""]
    return "\n".join(out)


def _kind(schema: dict[str, object]) -> str:
    if "const" in schema:
        return json.dumps(schema["const"])
    if isinstance(choices := schema.get("enum"), list):
        return " or ".join(json.dumps(c) for c in choices)
    if isinstance(kind := schema.get("type"), list):
        return " or ".join(map(str, kind))
    if isinstance(ref := schema.get("$ref"), str):
        return ref.rpartition("/")[2]
    return str(schema.get("type", "any"))


def cli() -> str:
    """Every verb with its arguments and options, and the exit codes."""
    # typer carries its own click: commands are read by what they have, not by their class.
    command = typer.main.get_command(root)
    out = ["# The command line", "", NOTE, (command.help or "").strip(), ""]
    out += ["## Exit codes", "", "The same in text and with `--json`.", ""]
    out += [table(["Code", "Meaning"], [[str(int(code)), text] for code, text in MEANING.items()]), ""]
    out += ["## Options of every verb", "", *_options(command), ""]
    out += _verbs(command, "pdctl")
    return "\n".join(out)


def _verbs(group: Any, path: str) -> list[str]:
    out: list[str] = []
    context = group.context_class(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        full = f"{path} {name}"
        usage = " ".join(command.collect_usage_pieces(command.context_class(command)))
        out += [f"## {full}", "", f"`{full} {usage}`", "", inspect.cleandoc(command.help or ""), ""]
        out += [*_options(command), ""]
        out += _verbs(command, full) if hasattr(command, "list_commands") else []
    return out


def _options(command: Any) -> list[str]:
    rows = []
    for option in command.params:
        shown = not getattr(option, "hidden", False) and option.name != "help"
        if option.param_type_name == "option" and shown:
            names = ", ".join(f"`{n}`" for n in (*option.opts, *option.secondary_opts))
            value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
            rows.append([names + value, (option.help or "").strip()])
    return [table(["Option", "What it does"], rows)] if rows else []


def rules() -> str:
    """The catalogue of diagnose; the pages are the rules' docstrings."""
    from pdctl.diagnose.docs import render

    text: str = render()
    return text if NOTE in text else f"{NOTE}\n{text}"


def bundle() -> str:
    """docs/bundle.md as it is written by hand, with the table of numbers as the code has it."""
    from pdctl.adapters.readings.names import NAMES

    page = (Path(__file__).parents[2] / "docs" / "bundle.md").read_text()
    head, begin, rest = page.partition("<!-- numbers: written by `make docs` -->\n")
    _, end, tail = rest.partition("<!-- end of numbers -->\n")
    rows = [[f"`{name}`", what] for name, what in NAMES.items()]
    return f"{head}{begin}\n{table(['Name', 'What it is'], rows)}\n\n{end}{tail}"


def supervisor() -> str:
    """docs/supervisor.md as it is written by hand, with the shipped policy as tables."""
    from pdctl.diagnose.rules import BY_CODE
    from pdctl.fleet.shipped import shipped_text
    from pdctl.supervisor.policy import SHIPPED, PolicyFile, shipped

    policy = PolicyFile.model_validate(shipped())
    page = (Path(__file__).parents[2] / "docs" / "supervisor.md").read_text()
    head, begin, rest = page.partition("<!-- policy: written by `make docs` -->\n")
    _, end, tail = rest.partition("<!-- end of policy -->\n")
    on = []
    for code in sorted(policy.on):
        for act, rung in policy.rungs(code):
            proof = "a proven wedge" if policy.needs_proof(act, rung) else "-"
            link = f"[{code}](rules.md#{anchor(code, BY_CODE[code].title)})"
            on.append([link, BY_CODE[code].title, str(act), f"{rung.after:g}", proof])
    often = [
        [name, str(row.per_hour), f"{row.backoff:g} to {row.backoff_max:g}", str(row.tries)]
        for name, row in policy.actions.items()
    ]
    section = shipped_text("profiles", SHIPPED).partition("[supervisor]\n")[2].partition("\n\n")[0]
    keys = [re.fullmatch(r"(\w+) = (.*?) +# (.*)", line) for line in section.splitlines()]
    rows = [[f"`{k[1]}`", f"`{k[2]}`", k[3]] for k in keys if k is not None]
    parts = [
        table(["`[supervisor]`", "Shipped", "What it is"], rows),
        table(["`[on.CODE.ACTION]`", "Finding", "Action", "`after`, seconds", "`proof`"], on),
        table(["`[actions.ACTION]`", "`per_hour`", "`backoff` to `backoff_max`, seconds", "`tries`"], often),
    ]
    return f"{head}{begin}\n" + "\n\n".join(parts) + f"\n\n{end}{tail}"


def anchor(code: str, title: str) -> str:
    return f"{code} {title}".lower().replace(",", "").replace(" ", "-")


PAGES: dict[str, Callable[[], str]] = {
    "rules.md": rules,
    "settings.md": settings,
    "catalogue.md": catalogue,
    "cli.md": cli,
    "contracts.md": contract_page,
    "bundle.md": bundle,
    "kernels.md": kernels,
    "supervisor.md": supervisor,
    "../pdctl/release/engine.lock": engine_lock,
    "../pdctl/cli/words/table.json": words,
}


def stale(folder: Path) -> dict[str, str]:
    """Pages whose file differs from what the code says now: name -> the text it should have."""
    found = {}
    for name, page in PAGES.items():
        text = page().rstrip() + "\n"
        path = folder / name
        if not path.is_file() or path.read_text() != text:
            found[name] = text
    return found
