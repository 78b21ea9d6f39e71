"""What a rule is and what it yields.

A rule is a pure function from Facts to findings. Its docstring is its page in the manual and has three
parts: "What it looks like", "What else it could be", "What to do".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from pdctl.diagnose.facts import Facts


class Severity(IntEnum):
    """INFO is worth knowing and healthy; WARNING will hurt; ERROR hurts now."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Hypothesis:
    """A live explanation and the cheapest test that would settle it."""

    text: str
    test: str


@dataclass(frozen=True)
class Finding:
    """`touches` are the engines concerned; `since` is Unix seconds. `certain` False asks for the tests.

    Of `touches`, `suffer` are those it was done to: what only concerns them is no cause of it.
    """

    code: str
    severity: Severity
    subject: str
    summary: str
    evidence: tuple[str, ...]
    remedy: str
    touches: frozenset[str]
    suffer: frozenset[str] = frozenset()
    since: float | None = None
    role: str = "trigger"
    certain: bool = True
    hypotheses: tuple[Hypothesis, ...] = ()
    title: str = ""


Check = Callable[[Facts], Iterable[Finding]]


@dataclass(frozen=True)
class Rule:
    """`needs` name facts (see runner.NEEDS); `echo_of` are codes that explain this one when they touch it.

    `role` is what a finding is when nothing explains it: trigger, amplifier or effect. A `fallback` rule
    sees that something failed and not why: whatever else touches it and is not younger explains it.
    """

    code: str
    title: str
    severity: Severity
    needs: tuple[str, ...]
    echo_of: tuple[str, ...]
    role: str
    page: str
    check: Check = field(repr=False)
    fallback: bool = False

    def finding(
        self,
        subject: str,
        summary: str,
        evidence: Sequence[str],
        remedy: str,
        *,
        touches: Iterable[str] | None = None,
        suffer: Iterable[str] = (),
        since: float | None = None,
        severity: Severity | None = None,
        hypotheses: Sequence[Hypothesis] = (),
    ) -> Finding:
        """A finding of this rule; with `hypotheses` it is not certain of its cause."""
        return Finding(
            code=self.code,
            severity=self.severity if severity is None else severity,
            subject=subject,
            summary=summary,
            evidence=tuple(evidence),
            remedy=remedy,
            touches=frozenset([subject] if touches is None else touches),
            suffer=frozenset(suffer),
            since=since,
            role=self.role,
            certain=not hypotheses,
            hypotheses=tuple(hypotheses),
            title=self.title,
        )


def rule(
    code: str,
    title: str,
    severity: Severity,
    needs: Sequence[str],
    *,
    echo_of: Sequence[str] = (),
    role: str = "trigger",
    fallback: bool = False,
) -> Callable[[Callable[[Rule, Facts], Iterable[Finding]]], Rule]:
    """Turn `check(rule, facts)` into a Rule."""

    def wrap(check: Callable[[Rule, Facts], Iterable[Finding]]) -> Rule:
        made: Rule

        def bound(facts: Facts) -> Iterable[Finding]:
            return check(made, facts)

        made = Rule(
            code=code,
            title=title,
            severity=severity,
            needs=tuple(needs),
            echo_of=tuple(echo_of),
            role=role,
            page=check.__doc__ or "",
            check=bound,
            fallback=fallback,
        )
        return made

    return wrap
