"""PD217: GPU memory is not free at a start, and nobody is seen to hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import past
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_OWN = 0.05  # of the card: contexts, communicators and the like of the engine itself
_HELD = (
    Hypothesis(
        "processes of the life before are left", "nvidia-smi, and ps -o ppid= -p PID of each pid it lists"
    ),
    Hypothesis(
        "a living sidecar or peer keeps the memory mapped",
        "stop the sidecar, or the peers that read from its last life, and look at the used memory again",
    ),
)
_SHARE = Hypothesis(
    "the share is too high for what else this GPU or host needs",
    "free -h and nvidia-smi with no engine running; start it with 0.05 less",
)


def _own(values: Mapping[str, str]) -> bool:
    """So little is taken that nobody else needs to hold it."""
    if "free" not in values:
        return False
    total, free = float(values["total"]), float(values["free"])
    return total - free <= _OWN * total


@rule("PD217", "GPU memory taken at the start", Severity.ERROR, ["logs"], fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine refuses to start because less GPU memory is free than it was told to take.

    What it looks like: "Free memory on device … on startup is less than desired GPU memory utilization".

    What else it could be: orphans of the life before (PD216), a living process that maps its memory by IPC
    (PD218), another engine or desktop on the GPU, a share that is too high for the card. On hosts whose GPU
    shares the host's memory, the page cache counts as taken.

    What to do: see who holds it before you lower the share.
    """
    for party in facts.parties:
        lines = [e for e in party.traces.of("process.gpu_memory_taken") if not past(party, e)]
        if not lines:
            continue
        values = lines[-1].values
        free = (
            f"{values['free']} of {values['total']} GiB are free"
            if "free" in values
            else "too little is free"
        )
        wanted = f", it wants {values['wanted']}" if "wanted" in values else ""
        yield rule.finding(
            party.name,
            f"{party.name} does not start: {free}{wanted}.",
            quoted(lines),
            "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
            since=since(lines),
            hypotheses=[_SHARE, *_HELD] if _own(values) else [*_HELD, _SHARE],
        )
