"""pdctl explain CODE"""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.session import session
from pdctl.diagnose.docs import page, paragraphs
from pdctl.diagnose.rules import BY_CODE, CATALOGUE
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.fleet.names import nearest
from pdctl.render.table import show_json, show_table


def command(
    ctx: typer.Context,
    code: Annotated[str | None, typer.Argument(help="A rule's code, such as PD602; none lists them.")] = None,
) -> Exit:
    """What a finding looks like, what else it could be, and what to do."""
    as_json = session(ctx).json
    if code is None:
        rows = [(r.code, r.severity.word, r.title) for r in CATALOGUE]
        if as_json:
            show_json(
                {
                    "schema": 1,
                    "rules": [dict(zip(("code", "severity", "title"), r, strict=True)) for r in rows],
                }
            )
        else:
            show_table(("code", "severity", "finds"), rows)
        return Exit.OK
    rule = BY_CODE.get(code.upper())
    if rule is None:
        raise ConfigError("unknown_rule", f"There is no rule {code}.", nearest(code.upper(), BY_CODE))
    if as_json:
        show_json(
            {
                "schema": 1,
                "code": rule.code,
                "title": rule.title,
                "severity": rule.severity.word,
                "page": paragraphs(rule),
                "echo_of": list(rule.echo_of),
            }
        )
    else:
        print(page(rule).rstrip())
    return Exit.OK
