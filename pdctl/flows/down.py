"""Stop everything of a fleet, router first, and prove that nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.facts.missing import Missing
from pdctl.facts.ports import PortState, parse
from pdctl.facts.ports import request as port_request
from pdctl.flows.asking import ask_host
from pdctl.flows.changing import doing
from pdctl.flows.context import Context, silent
from pdctl.flows.deploy import supervisor
from pdctl.remote.fanout import fan_out
from pdctl.units.spec import UnitStatus


@dataclass(frozen=True)
class Down:
    """Names that ran and were stopped, those that did not run, and ports still taken afterwards."""

    stopped: tuple[str, ...]
    idle: tuple[str, ...]
    taken: dict[str, list[PortState]]


def down(ctx: Context, confirm: Callable[[str], None] = silent) -> Down:
    """Stop all units installed on the fleet's hosts, also those that the fleet file no longer names.

    `confirm` is asked before anything that runs is stopped, and raises to keep it from that. PdctlError
    (exit 4) when something could not be stopped or a port of the fleet is still taken.
    """
    hosts = list(ctx.fleet.hosts)
    before = {h: ctx.units(h).status() for h in hosts}
    running = [(h, n) for h in hosts for n, s in before[h].items() if s.state not in ("inactive", "failed")]
    if running:
        names = ", ".join(name for _, name in running)
        confirm(f"This will stop {names}; requests under way fail. Go on?")
    for host, ended in fan_out(hosts, lambda host: supervisor.stop(ctx, host)).items():
        if isinstance(ended, PdctlError):
            raise ended
        if ended:
            ctx.say(f"stopped the supervisor on {host}")
    router = ctx.fleet.router
    failures: list[str] = []
    front = [(h, n) for h, n in running if (h, n) == (router.host, router.name)]
    for group in (front, [r for r in running if r not in front]):
        if group:
            ctx.say(f"stopping {', '.join(n for _, n in group)}")
        for (host, name), result in fan_out(group, lambda key: _stop(ctx, *key)).items():
            if isinstance(result, PdctlError):
                failures += [f"{name} on {host}: {result.message}", *result.details]
            elif result.running:
                failures.append(f"{name} on {host} still runs as pid {result.pid}")
    # They do not run; from now on nobody wants them to.
    given_up = [(h, n) for h in hosts for n, s in before[h].items() if s.state == "failed"]
    for (host, name), result in fan_out(given_up, lambda key: _stop(ctx, *key)).items():
        failures += [f"{name} on {host}: {result.message}"] if isinstance(result, PdctlError) else []
    taken = {h: found for h in hosts if (found := taken_ports(ctx, h, _ports(ctx, h)))}
    failures += [f"port {p.port} on {h} is still {p.words}" for h, ports in taken.items() for p in ports]
    if failures:
        hint = "`pdctl status` shows what runs; a port may belong to a process that is not pdctl's."
        raise PdctlError("not_down", "Not everything is stopped.", hint, exit=Exit.PARTIAL, details=failures)
    stopped = tuple(n for _, n in running)
    idle = tuple(n for h in hosts for n in before[h] if n not in stopped)
    return Down(stopped, idle, taken)


def _stop(ctx: Context, host: str, name: str) -> UnitStatus:
    with doing(ctx, f"stop/{name}", host, f"stop {name}") as step:
        status = ctx.units(host).stop(name)
        if status.running and step is not None:
            step.failed(f"{name} still runs as pid {status.pid}")
        return status


def _ports(ctx: Context, host: str) -> list[int]:
    return [p for u in ctx.fleet.units() if u.host == host for p in u.ports]


def taken_ports(ctx: Context, host: str, ports: Sequence[int]) -> list[PortState]:
    """Those of `ports` that nothing could listen on now and who holds them, asked on the host itself."""
    if not ports:
        return []
    request = port_request(ctx.fleet.hosts[host].address, ports)
    states = parse(ask_host(ctx, host, request).of("ports"))
    if isinstance(states, Missing):
        raise PdctlError("not_observable", f"The ports on {host} cannot be looked at: {states.reason}.")
    return [state for state in states if not state.free]
