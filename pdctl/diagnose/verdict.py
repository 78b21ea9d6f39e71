"""From findings to one answer: effects attached to their cause, roots in order, one leader; pure.

An effect hangs on its cause: by its rule's echo_of, and a fallback rule's finding on what knows the lines
that it quotes, else on whatever else touches it and is not younger. Order of roots: errors before warnings;
trigger, amplifier, effect; certain before uncertain; more effects first; older first. When the leader is not
certain of its cause, the answer is its live hypotheses, each with its cheapest test.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pdctl.diagnose.rule import Finding, Hypothesis, Severity
from pdctl.diagnose.rules import BY_CODE
from pdctl.diagnose.words import few

_ROLES = ("trigger", "amplifier", "effect")


@dataclass(frozen=True)
class Placed:
    """A finding in its place; `caused_by` is an index into Verdict.findings."""

    finding: Finding
    caused_by: int | None


@dataclass(frozen=True)
class Verdict:
    """`status`: healthy, cause or hypotheses. `leading` is an index into findings, None when healthy."""

    status: str
    summary: str
    findings: tuple[Placed, ...]
    hypotheses: tuple[Hypothesis, ...] = ()

    @property
    def leading(self) -> int | None:
        return None if self.status == "healthy" else 0

    @property
    def worst(self) -> Severity:
        return max((p.finding.severity for p in self.findings), default=Severity.INFO)


def _cause(effect: Finding, findings: Sequence[Finding]) -> Finding | None:
    """The finding that explains `effect`: the first code of its rule's echo_of that touches it."""
    for code in BY_CODE[effect.code].echo_of:
        for other in findings:
            if other.code == code and other is not effect and _explains(other, effect):
                return other
    return None


_QUOTED = re.compile(r"\S+ \(\S+:\d+\): ")  # a line of a log, as evidence.quote writes it
_SLACK = 30.0  # two hosts' clocks, and a log line that is written late


def _any_cause(effect: Finding, findings: Sequence[Finding]) -> Finding | None:
    """What else explains a fallback's finding: certain before uncertain, then the oldest."""
    able = [f for f in findings if f is not effect and _may_explain(f, effect)]
    return min(able, key=lambda f: (not f.certain, *_rank(f, 0)), default=None)


def _may_explain(cause: Finding, effect: Finding) -> bool:
    rule = BY_CODE[cause.code]
    if rule.fallback or cause.severity < effect.severity:
        return False
    if cause.role == "effect" or not _explains(cause, effect):
        return False
    either_way = effect.code in rule.echo_of
    if either_way and _explains(effect, cause):
        return False
    if cause.since is None or effect.since is None:
        # A doubt without a time says nothing of what came before it.
        return cause.certain or effect.since is None
    if either_way and effect.since > cause.since + _SLACK:
        return False
    return cause.since <= effect.since + _SLACK


def _of_same_lines(effect: Finding, findings: Sequence[Finding]) -> Finding | None:
    """A rule that knows what the very lines mean that a fallback only quotes."""
    lines = {line for line in effect.evidence if _QUOTED.match(line)}
    able = [
        f
        for f in findings
        if lines & set(f.evidence) and not BY_CODE[f.code].fallback and f.severity is not Severity.INFO
        and effect.code not in BY_CODE[f.code].echo_of
    ]  # fmt: skip
    return min(able, key=lambda f: _rank(f, 0), default=None)


# What an armed fault can pin or stop, by the word that its rule puts into the summary.
_FAULT_PINS = {
    "stall-transfer": "stalled",
    "slow-transfer": "stalled",
    "lose-want": "Want was lost",
    "lose-done": "Done was lost",
    "refuse-pages": "waiting for pages",
    "stop-steps": "makes no progress",
}


# Ends of processes: whoever was refused did not cause it by ending afterwards.
_ENDS = ("PD201", "PD203", "PD210", "PD211", "PD212", "PD213", "PD214")
# Events that are over: `since` is when the new life began.
_OVER = ("PD204",)
# Acts as long as it is armed and does not count how often.
_STANDING = ("refuse-pages", "stop-steps")


def _acted(cause: Finding) -> bool:
    return "hits 0" not in cause.evidence[0]


def _explains(cause: Finding, effect: Finding) -> bool:
    if cause.severity is Severity.INFO or not cause.touches & effect.touches:
        return False
    if cause.code in _ENDS and cause.touches & effect.touches <= effect.suffer:
        return False
    if cause.code in _OVER and cause.since is not None and effect.since is not None:
        # What began well after it was back has a cause of its own.
        return effect.since <= cause.since + _SLACK
    if cause.code == "PD606":
        return any(
            fault in cause.summary and sign in effect.summary and (fault in _STANDING or _acted(cause))
            for fault, sign in _FAULT_PINS.items()
        )
    return True


def _rank(finding: Finding, effects: int) -> tuple[int, int, bool, int, float, str]:
    since = finding.since if finding.since is not None else float("inf")
    role = _ROLES.index(finding.role)
    return (-finding.severity, role, not finding.certain, -effects, since, finding.code)


def _root(finding: Finding, cause: dict[int, Finding]) -> Finding:
    """The end of the chain of causes; a chain is no longer than the catalogue."""
    for _ in BY_CODE:
        above = cause.get(id(finding))
        if above is None:
            break
        finding = above
    return finding


def _causes(findings: Sequence[Finding]) -> dict[int, Finding]:
    """id of a finding -> what explains it."""
    cause = {id(f): c for f in findings if (c := _cause(f, findings)) is not None}
    for finding in findings:
        if id(finding) in cause or not BY_CODE[finding.code].fallback:
            continue
        other = _of_same_lines(finding, findings) or _any_cause(finding, findings)
        if other is not None and _root(other, cause) is not finding:
            cause[id(finding)] = other
    return cause


def _told(root: Finding, muted: Finding | None) -> Finding:
    if muted is None:
        return root
    said = f"it follows from {muted.code} on {muted.subject}, which is suppressed"
    return replace(root, evidence=(*root.evidence, said))


def judge(findings: Sequence[Finding], blind: Sequence[str] = (), muted: Sequence[Finding] = ()) -> Verdict:
    """The verdict over all findings of one run. `blind` are engines that answer and show no state; what one
    of the `muted` explains is no sign of another cause, and stands for itself.
    """
    cause = _causes([*findings, *muted])
    out = {id(m) for m in muted}
    loose = {id(f): above for f in findings if id(above := _root(f, cause)) in out}
    roots = [f for f in findings if id(f) not in cause or id(f) in loose]
    effects = {id(r): [f for f in findings if f is not r and _root(f, cause) is r] for r in roots}
    # A root is as grave as the gravest thing it caused.
    grave = {id(r): max([r.severity, *(e.severity for e in effects[id(r)])]) for r in roots}
    roots.sort(key=lambda r: (-grave[id(r)], *_rank(r, len(effects[id(r)]))))
    placed: list[Placed] = []
    for root in roots:
        at = len(placed)
        placed.append(Placed(_told(root, loose.get(id(root))), None))
        placed += [Placed(replace(f, role="effect"), at) for f in effects[id(root)]]
    if not placed or roots[0].severity is Severity.INFO:
        return Verdict("healthy", _calm(placed, blind), tuple(placed))
    leader = placed[0].finding
    status = "cause" if leader.certain else "hypotheses"
    return Verdict(status, leader.summary, tuple(placed), leader.hypotheses)


def _calm(placed: Sequence[Placed], blind: Sequence[str]) -> str:
    if not placed and blind:
        verb = "lists" if len(blind) == 1 else "list"
        return f"No finding; {few(blind)} {verb} no requests, so one that is stuck may not show."
    if not placed:
        return "No finding: every engine answers, moves and agrees."
    return "Healthy; " + placed[0].finding.summary
