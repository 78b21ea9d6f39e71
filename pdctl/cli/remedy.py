"""diagnose --fix: the remedy as a plan, a yes, and then the command itself."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import typer

from pdctl.cli.session import Session, confirm
from pdctl.diagnose.docs import paragraphs
from pdctl.diagnose.report import Report
from pdctl.diagnose.rules import BY_CODE
from pdctl.errors import PdctlError
from pdctl.exits import Exit

# Remedies that change something. What only looks (logs, status) is left to the reader.
_ACTS = ("abort", "deploy", "drill disarm", "relink", "restart", "resume", "rollback")
_ASKING = ("deploy", "relink", "restart", "rollback")


def acts(words: Sequence[str]) -> bool:
    """Whether a command of pdctl changes something."""
    return any(list(words[: len(verb)]) == verb for verb in (act.split() for act in _ACTS))


def command_of(report: Report) -> list[str]:
    """The leader's remedy as words of a command line. PdctlError when there is nothing that could be run."""
    verdict = report.verdict
    if verdict.leading is None:
        raise PdctlError("nothing_to_fix", "There is nothing to mend.", exit=Exit.OK)
    leader = verdict.findings[verdict.leading].finding
    if not leader.certain:
        tests = [f"{h.text}; to tell: {h.test}" for h in leader.hypotheses]
        raise PdctlError(
            "not_certain",
            f"{leader.code} is not certain of its cause, so nothing is run.",
            "Make the cheapest test first.",
            exit=Exit.FINDINGS,
            details=tests,
        )
    words = shlex.split(leader.remedy) if leader.remedy.startswith("pdctl ") else []
    if not acts(words[1:]):
        hint = f"It is for a person: {leader.remedy}" if leader.remedy else ""
        advice = _advice(leader.code)
        raise PdctlError(
            "no_command",
            f"The remedy of {leader.code} is no command of pdctl that acts.",
            hint,
            exit=Exit.FINDINGS,
            details=[advice] if advice else [],
        )
    return words[1:]


def _advice(code: str) -> str:
    """What the rule's page says to do, and of what pdctl does not do, why."""
    return next((p for p in paragraphs(BY_CODE[code]) if p.startswith("What to do:")), "")


def fix(ctx: typer.Context, s: Session, report: Report, yes: bool) -> Exit:
    """Show what would be done and why, ask, do it. The exit of the command that was run."""
    words = command_of(report)
    leader = report.verdict.findings[0].finding
    if not s.json:
        print(f"Plan: pdctl {shlex.join(words)}")
        print(f"  because {leader.code}: {leader.summary}")
        print(f"  {_advice(leader.code)}")
    confirm(f"Run pdctl {shlex.join(words)}?", yes)
    front = ["--fleet", str(s.fleet().path), *(["--json"] if s.json else [])]
    agreed = ["--yes"] if words[0] in _ASKING else []
    code = ctx.find_root().command.main([*front, *words, *agreed], prog_name="pdctl", standalone_mode=False)
    return Exit(code) if isinstance(code, int) else Exit.OK
