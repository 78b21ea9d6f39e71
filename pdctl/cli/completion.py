"""pdctl completion"""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Literal

import typer

from pdctl.cli.session import session
from pdctl.cli.words.scripts import script
from pdctl.exits import Exit
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="bash, zsh or fish.")],
) -> Exit:
    """Print what makes a shell complete verbs, options and the names of this fleet.

    Names are read from local files: the fleet file, its profiles, the journal. For bash put `eval "$(pdctl
    completion bash)"` into ~/.bashrc, for zsh the same with zsh into ~/.zshrc; for fish write it to
    ~/.config/fish/completions/pdctl.fish.
    """
    # Isolated: a fleet's folder may hold a folder that is called as a package of ours.
    text = script(shell, shlex.join([sys.executable, "-I", "-m", "pdctl.cli.words.answer"]))
    if session(ctx).json:
        show_json({"schema": 1, "shell": shell, "script": text})
    else:
        print(text, end="")
    return Exit.OK
