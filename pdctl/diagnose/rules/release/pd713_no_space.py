"""PD713: a file system that an engine writes to is full."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event, Mount
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.facts.machine import size

_SMALL = 4 << 30  # a file system below this is a tmpfs or a quota, not the host's disk
_SHM = ("shm", "posix_fallocate", "shared memory", "psm_", "nccl-")


def _full(mounts: tuple[Mount, ...]) -> list[Mount]:
    return [m for m in mounts if m.total and m.path != "/dev/shm" and m.free <= m.total // 100]


def _lines(party: Party) -> list[Event]:
    spaces = [e for e in party.traces.of("disk.no_space") if not any(w in e.line for w in _SHM)]
    return [*party.traces.of("disk.nearly_full"), *spaces]


@rule("PD713", "no space on a file system", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Something that an engine or its tools write to has no room.

    What it looks like: "No space left on device" in errors that seem unrelated: compilers, downloads,
    caches, sessions. A capacity of 67108864 bytes is a container's tmpfs of 64 MiB, whatever the host's
    disk has.

    What else it could be: shared memory has the same words (PD711): the line names shm or NCCL. Room
    without inodes is full too.

    What to do: `df -h` inside of the container or unit, for the path that the line names; give a small
    tmpfs a real folder, move caches (HF_HOME, TRITON_CACHE_DIR, TMPDIR) to the big disk.
    """
    for party in facts.parties:
        lines, host = _lines(party), facts.host(party.member.host)
        mounts = _full(host.traces.mounts) if host else []
        capacity = next((int(e.values["capacity"]) for e in lines if "capacity" in e.values), None)
        if not lines:
            continue
        tiny = capacity is not None and capacity < _SMALL
        small = [m for m in mounts if m.total < _SMALL]
        if tiny or small:
            path = lines[0].values.get("path", "") if tiny else small[0].path
            what = f"a small tmpfs ({size(capacity or small[0].total)})"
            said = (
                f"{party.name} filled {path or 'its temporary folder'}, {what}; the host's disk is another."
            )
            remedy = "bind a real folder over /tmp, or set TMPDIR to one"
        else:
            where = f"{mounts[0].path} is full" if mounts else "a file system is full"
            said = f"{party.name} has no room to write: {where}."
            remedy = f"du -xh --max-depth=2 {mounts[0].path if mounts else '/'}; move caches to the big disk"
        yield rule.finding(
            party.name,
            said,
            [*quoted(lines), *(f"{m.path}: {size(m.free)} of {size(m.total)} free" for m in mounts)],
            remedy,
            since=since(lines),
        )
