"""The supervisor's unit on the control host, where the fleet file asks for one.

It has a folder and a unit of its own beside the fleet's: a deployment records what serves, and it serves
nothing. On this machine it runs from this installation of pdctl and reads the fleet's own files; on another
one it runs from that host's pdctl and reads a copy that each deploy brings up to date.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Fleet, HostPaths
from pdctl.fleet.supervised import refuse_elsewhere
from pdctl.flows.context import Context
from pdctl.flows.deploy import supervisor_home as home
from pdctl.flows.deploy.look import HostState
from pdctl.flows.deploy.release import linger_step, root_step
from pdctl.flows.last_words import last_life, last_words
from pdctl.flows.ready import POLL, TAIL
from pdctl.plan.step import Step
from pdctl.supervisor.policy import load_policy
from pdctl.units.base import Units
from pdctl.units.choose import open_units
from pdctl.units.spec import UnitSpec

NAME = "supervisor"
# A turn of its loop asks hosts, each within its own deadline.
WATCHDOG, START, STOP = 300.0, 120.0, 90.0
RUNS = ("active", "activating")


def units_of(ctx: Context, name: str = "") -> Units:
    """The backend for this one unit, with a root of its own; on the control host, or where one was before."""
    host = ctx.fleet.hosts[name or ctx.fleet.control]
    return open_units(ctx.transport(host.name), _paths(ctx.fleet, host.name), host, ctx.fleet.name)


def _paths(fleet: Fleet, host: str) -> HostPaths:
    return HostPaths(f"{fleet.hosts[host].root}/{NAME}")


def desired(ctx: Context) -> UnitSpec:
    """ConfigError where it could not run: a wrong policy, or the control host lacks what it needs."""
    fleet, far = ctx.fleet, not ctx.fleet.hosts[ctx.fleet.control].local
    refuse_elsewhere(fleet)
    load_policy(fleet.paths.policy)
    paths = _paths(fleet, fleet.control)
    file = home.home_file(fleet) if far else str(fleet.path)
    pdctl = (home.program(ctx, version("pdctl")),) if far else (sys.executable, "-m", "pdctl")
    argv = (*pdctl, "--fleet", file, "supervise")
    # There it is not told of new files but begins again with them.
    words = [*argv, version("pdctl"), *([home.digest(home.files(fleet))] if far else [])]
    inputs = hashlib.sha256("\0".join(words).encode()).hexdigest()
    return UnitSpec(
        name=NAME,
        argv=argv,
        env_file=paths.env(NAME),
        cwd=home.folder(fleet) if far else str(fleet.dir),
        log=paths.log(NAME),
        run=paths.run(NAME),
        inputs=inputs,
        start_timeout=START,
        stop_timeout=STOP,
        watchdog=WATCHDOG,
        restart_delay=5.0,
        no_restart=(2,),
        role=NAME,
        fleet=fleet.name,
    )


def supervisor_steps(ctx: Context, hosts: Mapping[str, HostState], group: str) -> Iterator[Step]:
    """Take it away from those of `hosts` where the fleet file does not ask for it; install and start it."""
    fleet, host = ctx.fleet, ctx.fleet.control
    wanted = fleet.spec.fleet.supervise
    for state in hosts.values():
        if state.supervised and not (wanted and state.name == host):
            yield _removal(ctx, state.name, group)
    if not wanted:
        return
    spec = desired(ctx)
    if all(unit.host != host for unit in fleet.units()):
        # Nothing else of a deploy makes such a host ready for a unit.
        for step in (linger_step(ctx, hosts[host]), root_step(hosts[host])):
            yield replace(step, group=group, wave="")
    if not fleet.hosts[host].local:
        yield _files(ctx, group)

    def differs() -> Sequence[str]:
        return () if units_of(ctx).installed(NAME) == spec else ["its unit is not as it should be"]

    def install() -> None:
        ctx.transport(host).put(b"", spec.env_file, 0o600)
        units_of(ctx).install(spec)

    def idle() -> Sequence[str]:
        status = units_of(ctx).status([NAME])[NAME]
        if status.state not in RUNS:
            return [f"it is {status.state}"]
        return () if status.inputs == spec.inputs else ["it runs from another installation"]

    def start() -> None:
        if not fleet.hosts[host].local:
            home.refuse_blind(ctx, spec.argv[0])
        units_of(ctx).restart(NAME)
        _wait_started(ctx)

    yield Step(
        f"{host}/unit/{NAME}", host, "install the unit of the supervisor", differs, install, group=group
    )
    yield Step(f"{host}/start/{NAME}", host, "start the supervisor", idle, start, group=group)


def _files(ctx: Context, group: str) -> Step:
    host, found = ctx.fleet.control, home.files(ctx.fleet)
    what = f"send the fleet's {len(found)} files to the supervisor, mode 0600"

    def check() -> Sequence[str]:
        return home.differences(ctx, found)

    return Step(f"{host}/files/{NAME}", host, what, check, lambda: home.send(ctx, found), group=group)


def _wait_started(ctx: Context) -> None:
    """Until it says that it is ready; PdctlError with the end of what it said when it cannot become so."""
    units, end = units_of(ctx), time.monotonic() + START
    while (status := units.status([NAME])[NAME]).state != "active":
        if status.state != "activating" or time.monotonic() > end:
            said = units.logs(NAME, TAIL)
            raise PdctlError(
                "supervisor_failed",
                f"The supervisor did not start: it is {status.state}"
                + (f" ({status.reason})" if status.reason else "")
                + (f". It said: {words}." if (words := last_words(said)) else "."),
                "`pdctl supervise` in the foreground says what is in its way; then deploy again.",
                exit=Exit.FINDINGS,
                details=last_life(said),
            )
        time.sleep(POLL)


def _removal(ctx: Context, host: str, group: str) -> Step:
    what = "stop and remove the supervisor"

    def there() -> Sequence[str]:
        return ["it is not asked for"] if units_of(ctx, host).specs() else ()

    def remove() -> None:
        units_of(ctx, host).remove(NAME)
        if not ctx.fleet.hosts[host].local:
            home.remove(ctx, host)

    return Step(f"{host}/remove/{NAME}", host, what, there, remove, group=group)


def stop(ctx: Context, host: str) -> bool:
    """Before the fleet is taken down; whether one ran there."""
    if ctx.fleet.hosts[host].local and not Path(_paths(ctx.fleet, host).root).is_dir():
        return False  # which costs no process to see
    units = units_of(ctx, host)
    status = units.status([NAME]).get(NAME)
    if status is None or status.state in ("missing", "inactive", "failed"):
        return False
    units.stop(NAME)
    return True
