"""PD453: a kernel failed on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import gravity, past
from pdctl.diagnose.progress import moves
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_NAMED = ("PD113", "PD410", "PD411", "PD412", "PD413", "PD414", "PD418", "PD447", "PD448", "PD449", "PD450")
_KNOBS = ("PD680", "PD683", "PD685", "PD686")
_SPECULATIVE = ("speculative_algorithm", "speculative_config", "speculative_model", "num_speculative_tokens")


def _tests(party: Party) -> list[Hypothesis]:
    told = party.traces.settings
    drafts = [n for n in _SPECULATIVE if told.get(n)] or [n for n in party.traces.environ if "SPEC" in n]
    return [
        *(
            Hypothesis(
                f"speculative decoding indexes past its buffers ({name})",
                "start it without speculation and give it the same load",
            )
            for name in drafts[:1]
        ),
        Hypothesis(
            "an input is out of range: a token id, a position past the longest context, another's page",
            "replay the last requests one by one on an engine of its own, CUDA_LAUNCH_BLOCKING=1",
        ),
        Hypothesis(
            "a kernel of this build is wrong for this model or GPU",
            "once more with another attention backend, then with CUDA graphs off",
        ),
    ][:3]


@rule(
    "PD453",
    "a kernel failed on the GPU",
    Severity.ERROR,
    ["logs"],
    echo_of=[*_NAMED, *_KNOBS],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A kernel read or wrote where it may not: its process can use the GPU no more, its peers wait for it.

    What it looks like: "Assertion `index out of bounds` failed" with block and thread numbers, "device-side
    assert triggered", "an illegal memory access was encountered", "unspecified launch failure"; other ranks
    hang or end later by a watchdog.

    What else it could be: the driver's Xid says the same from its side (PD414); hardware Xids come first. The
    Python line that raised is only the next call after the failed kernel.

    What to do: restart the engine; find the kernel by one replay with CUDA_LAUNCH_BLOCKING=1, and what
    differs from a run that works: speculation, graphs, attention backend, length.
    """
    for party in facts.parties:
        lines = [e for e in party.traces.of("gpu.device_assert", "gpu.illegal_access") if not past(party, e)]
        if not lines:
            continue
        first = min(lines, key=lambda e: e.order)
        what = first.values.get("what", "")
        works = moves(party.traces, at=facts.at) and party.traces.ended is None
        yield rule.finding(
            party.name,
            f"A kernel of {party.name} failed on its GPU"
            + (f": {what}." if what else ".")
            + (f" {first.rank} is the rank that said so." if first.rank else ""),
            quoted(lines),
            f"pdctl restart --co {party.member.cell}",
            since=since(lines),
            severity=gravity(party) or (Severity.WARNING if works else None),
            hypotheses=_tests(party),
        )
