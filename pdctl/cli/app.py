"""The verbs, as a static table: `pdctl --help` reads it and imports none of them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.names import nearest


@dataclass(frozen=True)
class Verb:
    """`module` under pdctl.cli holds `command`, or `app` for a verb with sub-verbs."""

    name: str
    module: str
    section: str
    help: str


VERBS: tuple[Verb, ...] = (
    Verb("init", "init", "Set up", "Write a fleet file, profiles and a token."),
    Verb("adopt", "adopt", "Set up", "Write a fleet from what runs today: scripts, units, processes."),
    Verb("model", "model", "Set up", "Fetch a model, list what is cached."),
    Verb("completion", "completion", "Set up", "Let a shell complete verbs, options and the fleet's names."),
    Verb("deploy", "deploy", "Run", "Bring the fleet to what its file says; a second time changes nothing."),
    Verb("rollback", "rollback", "Run", "Go back to a deployment that has served."),
    Verb("restart", "restart", "Run", "Restart one unit, or with --co a whole cell in the right order."),
    Verb("relink", "relink", "Run", "Link a prefill and a decode anew; neither is restarted."),
    Verb("resume", "resume", "Run", "Open admissions again; with a run, finish what it began."),
    Verb("abort", "abort", "Run", "End one request on the router and both its engines."),
    Verb("down", "down", "Run", "Stop everything and prove that it is stopped."),
    Verb("lock", "lock", "Run", "Who holds the fleet; hold it by hand, release it."),
    Verb(
        "supervise",
        "supervise",
        "Run",
        "Look after the fleet: see what is wrong, act by policy, tell people.",
    ),
    Verb("pause", "pause", "Run", "The supervisor does nothing by itself until `pdctl resume`."),
    Verb("check", "check", "Look", "Preflight: what would keep this fleet from working, and how to mend it."),
    Verb("status", "status", "Look", "Engines, queues, ages, pages, the router's ledger."),
    Verb("diagnose", "diagnose", "Look", "Who holds which request, since when and why; what to do about it."),
    Verb("incidents", "incidents", "Look", "What the supervisor found wrong and what it did about it."),
    Verb("explain", "explain", "Look", "What a finding's code means and what to do."),
    Verb("requests", "requests", "Look", "The router's ledger, request by request."),
    Verb("logs", "logs", "Look", "What a unit said."),
    Verb("history", "history", "Look", "Earlier runs of pdctl and their steps."),
    Verb("profile", "profile", "Tune", "Env profiles: list, show, compare, set a value with its reason."),
    Verb(
        "tune-timeout",
        "tune_timeout",
        "Tune",
        "Measure, propose, and see a watchdog fire before it is trusted.",
    ),
    Verb("load", "load", "Tune", "Agents in rounds: what succeeds, how fast, and which requests hang."),
    Verb("drill", "drill", "Tune", "Play faults on a drillable fleet: what finds each, and how soon."),
)
BY_NAME = {verb.name: verb for verb in VERBS}


class LazyGroup(TyperGroup):
    """Imports a verb's module when that verb is invoked."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [verb.name for verb in VERBS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        verb = BY_NAME.get(cmd_name)
        if verb is None:
            hint = nearest(cmd_name, BY_NAME)
            raise ConfigError("unknown_verb", f"pdctl has no verb {cmd_name!r}.", hint)
        module = importlib.import_module(f"pdctl.cli.{verb.module}")
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(verb.name)(module.command)
        command = typer.main.get_command(app)
        command.name = verb.name
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Said here, because typer turns it into an exit code without a word.
            raise PdctlError("interrupted", "Interrupted.", exit=Exit.INTERRUPTED) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for section in dict.fromkeys(verb.section for verb in VERBS):
            with formatter.section(section):
                formatter.write_dl([(v.name, v.help) for v in VERBS if v.section == section])


root = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Operate prefill/decode-disaggregated LLM serving.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pdctl {version('pdctl')}")
        raise typer.Exit


@root.callback()
def _globals(
    fleet: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Fleet file or folder; else $PDCTL_FLEET, ./fleet.toml."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")] = False,
    resumes: Annotated[str, typer.Option(hidden=True, help="The run that this one goes on with.")] = "",
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options for every verb; they may stand before or behind it."""


def hoist(argv: list[str]) -> list[str]:
    """Move the global options in front of the verb, so that `pdctl status --json` works too."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word == "--json" or word.startswith("--fleet="):
            front.append(word)
        elif word == "--fleet":
            path = next(words, None)
            if path is None:
                raise ConfigError("usage", "Option '--fleet' requires an argument.", "See `pdctl --help`.")
            front += [word, path]
        else:
            rest.append(word)
    return front + rest


def run(argv: list[str]) -> int:
    """Invoke a verb; its Exit, or 0. Errors are raised, not printed."""
    command = typer.main.get_command(root)
    code = command.main(hoist(argv), prog_name="pdctl", standalone_mode=False)
    return int(code) if isinstance(code, int) else 0
