"""PD413: a GPU's memory has errors."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed
from pdctl.diagnose.xids import MEMORY, of, xids

_MILD = frozenset({63, 92})  # recorded, repaired at the next reset


@rule("PD413", "GPU memory has errors", Severity.ERROR, [])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """ECC could not repair what a GPU read, or rows of its memory are being replaced.

    What it looks like: Xid 48, 64, 94, 95 or 140 in the kernel log, "uncorrectable ECC error" in an engine's;
    the process on that GPU dies, the others of its group wait.

    What else it could be: Xid 63 alone is a repaired row: a reset at the next good moment is enough. An
    illegal access without ECC lines is software.

    What to do: drain the node, reset the GPU so that rows are remapped; replace it when remapping fails (64).
    """
    for host in facts.hosts:
        here = [p for p in facts.parties if p.member.host == host.name]
        found = of(xids(host.traces.events), MEMORY)
        logged = [e for p in here for e in p.traces.of("gpu.ecc")]
        if not found and not logged:
            continue
        mild = not logged and all(x.number in _MILD for x in found)
        what = listed(dict.fromkeys(x.told for x in found)) if found else "uncorrectable ECC errors"
        yield rule.finding(
            host.name,
            f"a GPU of {host.name} has memory errors: {what}.",
            quoted([*(x.event for x in found), *logged]),
            f"drain {host.name}, reset the GPU; replace it if remapping fails or it comes again",
            touches=[host.name, *(p.name for p in here)],
            since=since([*(x.event for x in found), *logged]),
            severity=Severity.WARNING if mild else Severity.ERROR,
        )
