"""Stop everything of a fleet, router first, and prove that nothing is left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.flows.context import Context
from pdctl.flows.deploy import engine_python
from pdctl.remote.fanout import fan_out
from pdctl.transport.base import checked
from pdctl.transport.command import Command

_TAKEN = """
import json, socket, sys
taken = []
for port in sys.argv[2:]:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((sys.argv[1], int(port)))
        except OSError:
            taken.append(int(port))
print(json.dumps(taken))
"""


@dataclass(frozen=True)
class Down:
    """Names that ran and were stopped, those that did not run, and ports still taken afterwards."""

    stopped: tuple[str, ...]
    idle: tuple[str, ...]
    taken: dict[str, list[int]]


def down(ctx: Context) -> Down:
    """Stop all units installed on the fleet's hosts, also those that the fleet file no longer names.

    PdctlError (exit 4) when something could not be stopped or a port of the fleet is still taken.
    """
    hosts = list(ctx.fleet.hosts)
    before = {h: ctx.units(h).status() for h in hosts}
    running = [(h, n) for h in hosts for n, s in before[h].items() if s.state not in ("inactive", "failed")]
    router = ctx.fleet.router
    failures: list[str] = []
    front = [(h, n) for h, n in running if (h, n) == (router.host, router.name)]
    for group in (front, [r for r in running if r not in front]):
        if group:
            ctx.say(f"stopping {', '.join(n for _, n in group)}")
        for (host, name), result in fan_out(group, lambda key: ctx.units(key[0]).stop(key[1])).items():
            if isinstance(result, PdctlError):
                failures += [f"{name} on {host}: {result.message}", *result.details]
            elif result.running:
                failures.append(f"{name} on {host} still runs as pid {result.pid}")
    taken = {h: found for h in hosts if (found := taken_ports(ctx, h, _ports(ctx, h)))}
    failures += [f"port {p} on {h} is still taken" for h, ports in taken.items() for p in ports]
    if failures:
        hint = "`pdctl status` shows what runs; a port may belong to a process that is not pdctl's."
        raise PdctlError("not_down", "Not everything is stopped.", hint, exit=Exit.PARTIAL, details=failures)
    stopped = tuple(n for _, n in running)
    idle = tuple(n for h in hosts for n in before[h] if n not in stopped)
    return Down(stopped, idle, taken)


def _ports(ctx: Context, host: str) -> list[int]:
    return [p for u in ctx.fleet.units() if u.host == host for p in u.ports]


def taken_ports(ctx: Context, host: str, ports: Sequence[int]) -> list[int]:
    """Those of `ports` that nothing could listen on now, asked on the host itself."""
    if not ports:
        return []
    spec = ctx.fleet.hosts[host]
    argv = (engine_python(spec), "-c", _TAKEN, spec.address, *map(str, ports))
    result = checked(ctx.transport(host), Command(argv), 30.0, "looking at ports")
    found: list[int] = json.loads(result.text)
    return found
