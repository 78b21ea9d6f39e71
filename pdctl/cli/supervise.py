"""pdctl supervise"""

from __future__ import annotations

import resource
import signal
import time
from types import FrameType

import typer

from pdctl.cli.session import session
from pdctl.exits import Exit
from pdctl.flows.diagnose import judge_bundle
from pdctl.flows.supervise.service import Service
from pdctl.render.html.page import page
from pdctl.units.notify import tell


def command(ctx: typer.Context) -> Exit:
    """Look after the fleet until it is told to stop: see what is wrong, act by policy, keep the evidence.

    SIGHUP reads policy.toml and the fleet file again; SIGTERM lets an act under way end first.
    """
    s = session(ctx)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # a large fleet is a connection or two an engine
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    service = Service(s.fleet, _say, tell, lambda path: page(judge_bundle(path)))

    def on(number: int, frame: FrameType | None) -> None:
        (service.again if number == signal.SIGHUP else service.stop).set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on)
    service.run()
    return Exit.OK


def _say(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}", flush=True)
