"""PD114: prefill and decode loaded different weights."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import pairs
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD114", "prefill and decode loaded different weights", Severity.ERROR, [])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The two sides run different models, or different revisions of one.

    What it looks like: handshakes and transfers succeed, no error anywhere, and answers are wrong: KV of one
    set of weights is read by another. It begins with a rolling update or a download that was not pinned.

    What else it could be: wrong answers with equal weights are damaged transfers or a kernel. The name of the
    model is no proof: compare the resolved commit or a hash of the weights.

    What to do: pin --revision to one commit on both sides, and restart both.
    """
    for prefill, decode in pairs.pairs(facts):
        left, right = pairs.revision(prefill.traces), pairs.revision(decode.traces)
        lines = []
        if left and right and not _same(left, right):
            lines.append(f"revision: {prefill.name} {left}, {decode.name} {right}")
        lines += [
            d.told(prefill.name, decode.name)
            for d in pairs.differences(prefill, decode)
            if d.name == "model" and pairs.UNSET not in (d.prefill, d.decode)
        ]
        if lines:
            yield rule.finding(
                f"{prefill.name} -> {decode.name}",
                f"{prefill.name} and {decode.name} loaded different weights: {lines[0].partition(': ')[2]}.",
                lines,
                "pin --revision to one commit on both sides, then: pdctl restart --co CELL",
                touches=[prefill.name, decode.name],
            )


def _same(one: str, other: str) -> bool:
    """Commits may be shortened."""
    return one.startswith(other) or other.startswith(one)
