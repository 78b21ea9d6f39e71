"""Run rules over facts: findings, what ran, and what was skipped with the reason; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.needs import NEEDS
from pdctl.diagnose.rule import Finding, Rule
from pdctl.diagnose.rules import CATALOGUE

FAILED = "the rule itself failed"


@dataclass(frozen=True)
class Skip:
    """A rule that could not look at `subject` (None: at anything)."""

    code: str
    subject: str | None
    reason: str


@dataclass(frozen=True)
class Ran:
    findings: tuple[Finding, ...]
    run: tuple[str, ...]
    skipped: tuple[Skip, ...]


def run(facts: Facts, rules: Sequence[Rule] = CATALOGUE) -> Ran:
    """All findings in the order of the rules. A rule is skipped when nobody has a fact that it needs."""
    findings: list[Finding] = []
    done: list[str] = []
    skipped: list[Skip] = []
    for rule in rules:
        lacks = [lack for need in rule.needs for lack in NEEDS[need](facts)]
        skipped += [Skip(rule.code, lack.subject, lack.reason) for lack in lacks]
        if any(lack.total for lack in lacks):
            continue
        try:
            found = list(rule.check(facts))
        except Exception as error:  # noqa: BLE001 - told as a skip; what other rules see is not lost with it
            skipped.append(Skip(rule.code, None, f"{FAILED}: {type(error).__name__}: {error}"))
            continue
        findings += found
        done.append(rule.code)
    return Ran(tuple(findings), tuple(done), tuple(dict.fromkeys(skipped)))
