"""Which finding leads, and which hang on it."""

from __future__ import annotations

from typing import Any

from pdctl.diagnose.rule import Finding, Hypothesis, Severity
from pdctl.diagnose.rules import BY_CODE
from pdctl.diagnose.verdict import Verdict, judge

DOUBT = (Hypothesis("this", "look here"), Hypothesis("that", "look there"))
FALLBACK, CAUSE, OTHER = BY_CODE["PD524"], BY_CODE["PD522"], BY_CODE["PD634"]


def told(code: str, *touches: str, since: float | None = None, **over: Any) -> Finding:
    return BY_CODE[code].finding(code, code, ["line"], "do", touches=touches, since=since, **over)


def placed(verdict: Verdict) -> list[tuple[str, int | None]]:
    return [(p.finding.code, p.caused_by) for p in verdict.findings]


def test_what_only_saw_a_failure_hangs_on_whatever_explains_it() -> None:
    vague = told(FALLBACK.code, "p", "d", since=100.0, hypotheses=DOUBT)
    verdict = judge([vague, told(CAUSE.code, "p", since=90.0)])
    assert placed(verdict) == [(CAUSE.code, None), (FALLBACK.code, 0)]
    assert verdict.status == "cause" and verdict.findings[1].finding.role == "effect"


def test_what_came_later_or_touches_others_explains_nothing() -> None:
    vague = told(FALLBACK.code, "p", "d", since=100.0, hypotheses=DOUBT)
    later, elsewhere = told(CAUSE.code, "p", since=900.0), told(OTHER.code, "x", since=1.0)
    assert {at for _, at in placed(judge([vague, later, elsewhere]))} == {None}


def test_a_doubt_without_a_time_does_not_explain_what_has_one() -> None:
    vague = told(FALLBACK.code, "d", since=100.0, hypotheses=DOUBT)
    doubt = told(CAUSE.code, "d", hypotheses=DOUBT)
    verdict = judge([doubt, vague])
    assert placed(verdict)[0] == (FALLBACK.code, None) and verdict.status == "hypotheses"


def test_the_certain_lead_before_the_uncertain_and_the_older_before_the_younger() -> None:
    doubt = told(OTHER.code, "d", since=1.0, hypotheses=DOUBT)
    old, young = told(CAUSE.code, "p", since=50.0), told("PD635", "d", since=60.0)
    assert [code for code, _ in placed(judge([doubt, young, old]))] == [CAUSE.code, "PD635", OTHER.code]


def test_a_warning_does_not_explain_an_error() -> None:
    vague = told(FALLBACK.code, "p", since=100.0, hypotheses=DOUBT)
    warning = told(CAUSE.code, "p", since=90.0, severity=Severity.WARNING)
    assert placed(judge([warning, vague]))[0] == (FALLBACK.code, None)


def test_a_rule_that_knows_the_very_lines_explains_what_only_quotes_them() -> None:
    line = "p (p.log:7): ERROR something"
    vague = BY_CODE[FALLBACK.code].finding("p", "s", [line], "", touches=["p"], since=1.0, hypotheses=DOUBT)
    knows = BY_CODE[OTHER.code].finding("p", "s", [line], "", touches=["p"], since=900.0, hypotheses=DOUBT)
    assert placed(judge([vague, knows])) == [(OTHER.code, None), (FALLBACK.code, 0)]


def test_a_life_that_is_back_explains_what_began_before_it_and_nothing_newer() -> None:
    back = told("PD204", "d", since=100.0)
    before, after = told("PD602", "d", since=90.0), told("PD602", "d", since=190.0)
    assert placed(judge([back, before])) == [("PD204", None), ("PD602", 0)]
    assert placed(judge([back, after])) == [("PD602", None), ("PD204", None)]


def test_what_a_suppressed_cause_explains_is_no_sign_of_another_one() -> None:
    """Frozen and accepted as such; its earlier end is not why it is not linked now."""
    frozen, ended = told("PD202", "d"), told("PD204", "d", since=1.0, severity=Severity.WARNING)
    unlinked = told("PD502", "p", "d")
    assert (unlinked.code, 0) in placed(judge([ended, unlinked])), "it would explain it"
    verdict = judge([ended, unlinked], muted=[frozen])
    assert {at for _, at in placed(verdict)} == {None}
    (told_so,) = [p.finding for p in verdict.findings if p.finding.code == "PD502"]
    assert told_so.evidence[-1] == "it follows from PD202 on PD202, which is suppressed"
