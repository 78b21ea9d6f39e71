"""PD711: shared memory is too small."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed
from pdctl.facts.machine import size

_AGAIN = 2  # restarts that may each have left what they mapped
_LEFT = "ls -l /dev/shm and remove what no living process maps (fuser -v); then --shm-size=10g"


@rule("PD711", "shared memory too small", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """/dev/shm has no room for what ranks of one host share.

    What it looks like: a start with more than one rank fails or hangs at ncclShmOpen, "posix_fallocate
    failed: No space left on device", "Error while creating shared memory segment", or a SIGBUS later.
    Containers get 64 MB by default.

    What else it could be: "No space left on device" of a cache, log or download is a disk (PD713): ask df
    /dev/shm, not df /. Left-over segments of dead engines fill a big /dev/shm too.

    What to do: --ipc=host or --shm-size=10g (an emptyDir of medium Memory in Kubernetes); remove segments
    that nobody has mapped.
    """
    lines = facts.events("shm.nccl", "shm.full")
    mounts = [(h, m) for h in facts.hosts for m in h.traces.mounts if m.path == "/dev/shm"]
    tight = [f"{m.path} on {h.name}: {size(m.free)} of {size(m.total)} free" for h, m in mounts]
    full = [(h, m) for h, m in mounts if m.free < max(1 << 20, m.total // 100)]
    if not lines and not full:
        return
    names = writers(lines) or [p.name for h, _ in full for p in facts.parties if p.member.host == h.name]
    subject = listed(names) if names else full[0][0].name
    lives = [p.traces.restarts or 0 for p in facts.parties if p.name in names]
    again = bool(full) and max(lives, default=0) >= _AGAIN
    yield rule.finding(
        subject,
        f"/dev/shm is too small for {subject}"
        + (
            f", which was started {max(lives) + 1} times: each dead life may have left its segments."
            if again
            else "."
        ),
        [*tight, *quoted(lines)],
        _LEFT if again else "--ipc=host or --shm-size=10g",
        touches=names or [subject],
        since=since(lines),
    )
