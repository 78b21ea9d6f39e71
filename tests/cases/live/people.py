"""What people leave behind or change by hand, a router in front of nothing, and a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

from tests.cases.live.fleet import Fleet, Wrong
from tests.cases.live.processes import env_edited
from tests.cases.live.row import Skip, row
from tests.pdctl.flows.swallower import Swallower


@row("hold left behind", "PD604", subject="router", says="holds admissions")
def held(fleet: Fleet) -> Iterator[str]:
    fleet.admin("router", "hold")
    fleet.send()
    fleet.wait("a held request", lambda: fleet.state("router").get("held"))
    fleet.wait("an old hold", lambda: (fleet.state("router").get("hold_age_s") or 0.0) > 5.0)
    yield "the router holds a request, nobody has the fleet's lock"


@row("drained engine left", "PD604", subject="decode-0", says="is drained")
def drained(fleet: Fleet) -> Iterator[str]:
    fleet.admin("decode-0", "drain", timeout=1)
    fleet.wait("it is drained", lambda: fleet.state("decode-0").get("status") == "drained")
    yield "decode-0 says drained"


@row("environment changed by hand", "PD101", subject="decode-0", says="other values than its profile")
def environment(fleet: Fleet) -> Iterator[str]:
    before = env_edited(fleet, "decode-0", 'PD_HEARTBEAT_TIMEOUT="9"')
    try:
        fleet.restart("decode-0")
        value = fleet.state("decode-0")["timeouts"]["heartbeat"]["value"]
        if value != 9:
            raise Wrong(f"its heartbeat is {value}")
        yield "decode-0 runs with PD_HEARTBEAT_TIMEOUT=9"
    finally:
        fleet.path("env", "decode-0").write_text(before)
    fleet.restart("decode-0")


@row("live value out of order", "PD105", subject="decode-0 and prefill-0", says="PD_DECODE_TRANSFER_TIMEOUT")
def out_of_order(fleet: Fleet) -> Iterator[str]:
    old = fleet.state("decode-0")["timeouts"]["transfer"]["value"]
    fleet.admin("decode-0", "timeouts", transfer=500)
    value = lambda: fleet.state("decode-0").get("timeouts", {}).get("transfer", {}).get("value")  # noqa: E731
    fleet.wait("it is in force", lambda: value() == 500)
    yield "decode-0's transfer deadline is 500 s, prefill's 120 s"
    fleet.admin("decode-0", "timeouts", transfer=old)
    fleet.wait("it is in force", lambda: value() == old)


@row("requests forgotten by the engines", "PD601", says="no engine knows")
def forgotten(fleet: Fleet) -> Iterator[str]:
    """The router counts them; what lies between it and the engines swallows every POST."""
    made = fleet.ctx.fleet
    units = fleet.ctx.units("local")
    units.stop("router")
    prefill, decode = made.engine("prefill-0"), made.engine("decode-0")
    argv = [sys.executable, "-m", "engine", "router", "--instance", "router"]
    argv += ["--host", made.router.address, "--port", str(made.router.port)]
    argv += ["--served-model-name", made.model.name]
    env = {**os.environ, "PD_FLEET_TOKEN_FILE": str(made.paths.token)}
    with Swallower(prefill.port) as first, Swallower(decode.port) as second:
        argv += ["--prefill", f"prefill-0=http://127.0.0.1:{first.port},{prefill.bootstrap},a"]
        argv += ["--decode", f"decode-0=http://127.0.0.1:{second.port},a"]
        router = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            fleet.wait("it is ready", fleet.ready)
            fleet.send(2)
            fleet.wait("it counts both", lambda: len(fleet.requests()) == 2)
            fleet.wait("they are old", lambda: min(r["stage_age_s"] for r in fleet.requests()) > 5.0)
            yield "the router counts 2 requests, no engine has one"
        finally:
            router.kill()
            router.wait(30)
    units.start("router")


@row("the host's disk is full", "PD701", subject="local", says="full")
def disk_full(fleet: Fleet) -> Iterator[str]:
    if fleet.disk is None:
        raise Skip("no file system can be mounted here; it would take root")
    room = os.statvfs(fleet.disk)
    used = (room.f_blocks - room.f_bfree) * room.f_frsize
    _resize(fleet, used + (2 << 20))
    fill = fleet.disk / "core.dump"
    try:
        with suppress(OSError), open(fill, "wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))
        yield f"{fill.name} of {fill.stat().st_size >> 10} KiB has the last room of {fleet.disk.name}"
    finally:
        fill.unlink(missing_ok=True)
        _resize(fleet, 1 << 30)


def _resize(fleet: Fleet, size: int) -> None:
    options = f"remount,size={size}"
    subprocess.run(["mount", "-o", options, str(fleet.disk)], check=True, capture_output=True)


@row("a clock that is wrong")
def clock(fleet: Fleet) -> Iterator[str]:
    raise Skip("a clock is its machine's: it takes hosts (tests/hosts), the local fleet has one")
    yield ""
