"""PD701: a disk that is full."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.facts.machine import MIB, ROOM, size
from pdctl.facts.missing import known

_FULL = 16 * MIB


@rule("PD701", "disk full", Severity.WARNING, ["host.disk"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The file system that holds releases, units and logs of a host has no room left, or hardly any.

    What it looks like: a deploy fails in the middle, logs end in the middle of a line, units cannot write
    their state. Engines that run go on serving.

    What else it could be: room without inodes is as full; the evidence shows both.

    What to do: see what fills it with `du -xh --max-depth=2` on that host; older releases go with a lower
    `retain` and the next `pdctl deploy`. Another disk is `hosts.NAME.root` in the fleet file.
    """
    for host in facts.hosts:
        if not known(host.disk):
            continue
        room = host.disk
        inodes = room.inodes_free is not None and room.inodes_free < 100
        if room.free >= ROOM and not inodes:
            continue
        full = room.free < _FULL or inodes
        left = "no inodes" if inodes else size(room.free)
        evidence = [f"{room.path}: {size(room.free)} of {size(room.total)} free"]
        if room.inodes_free is not None:
            evidence.append(f"inodes free: {room.inodes_free}")
        yield rule.finding(
            host.name,
            f"{room.path} on {host.name} is {'full' if full else 'nearly full'}: {left} left.",
            evidence,
            f"du -xh --max-depth=2 {room.path}   # on {host.name}",
            touches=[m.name for m in facts.members() if m.host == host.name],
            severity=Severity.ERROR if full else None,
        )
