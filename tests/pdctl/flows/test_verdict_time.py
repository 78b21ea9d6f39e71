"""A verdict or a status over four hosts takes no longer than a dead one's deadline and little more."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from pdctl.diagnose.report import Report
from pdctl.flows import status
from pdctl.flows.collect.hosts import HOST_DEADLINE
from pdctl.flows.diagnose import diagnose
from pdctl.render.status import troubles
from tests.pdctl.flows.conftest import PAIR, Bench

# What the verdict itself may take: collecting from hosts that live, and judging.
LIVING = 3.0


def own_address() -> str:
    """One of this machine's that is not loopback: a host that SSH reaches may not have another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        address = str(probe.getsockname()[0])
        if not address.startswith("127."):
            return address
    pytest.skip("this machine has no address but loopback")


@contextlib.contextmanager
def silent(address: str) -> Iterator[int]:
    """A port whose connects get no answer, as those of a host without power: its backlog is full."""
    with contextlib.ExitStack() as kept:
        listener = kept.enter_context(socket.create_server((address, 0), backlog=0))
        port = int(listener.getsockname()[1])
        for _ in range(4):
            dialled = kept.enter_context(socket.socket())
            dialled.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                dialled.connect((address, port))
        yield port


def told(report: Report) -> set[tuple[str, str]]:
    return {(p.finding.code, p.finding.subject) for p in report.verdict.findings}


@pytest.fixture
def four(two: Bench) -> Iterator[Bench]:
    """Two hosts that serve, one that is there and was not deployed, one that is dead."""
    two.deploy()
    at = own_address()
    with silent(at) as ssh, silent(at) as first, silent(at) as bootstrap, silent(at) as last:
        text = two.path.read_text()
        living = '[hosts.h3]\ntransport = "local"\n'
        dead = f'[hosts.h4]\ntransport = "ssh"\naddress = "{at}"\nport = {ssh}\nuser = "nobody"\n'
        text = text.replace("[hosts.h1]", f"{living}{dead}[hosts.h1]", 1)
        text += PAIR.format(cell="d", host="h4", port=first, bootstrap=bootstrap, last=last)
        before = two.path.read_text()
        two.path.write_text(text)
        try:
            yield two
        finally:
            two.path.write_text(before)


def test_a_dead_host_costs_its_deadline_and_is_named(four: Bench) -> None:
    context = four.context()
    began = time.monotonic()
    report = diagnose(context)
    seconds = time.monotonic() - began
    assert ("PD301", "h4") in told(report), told(report)
    assert report.verdict.findings[0].finding.code == "PD301", report.verdict.summary
    assert seconds < HOST_DEADLINE + LIVING, f"{seconds:.1f} s"


def test_a_status_with_a_dead_host_does_not_wait_for_its_ssh(four: Bench) -> None:
    found = status.collect_status(four.context())
    assert set(found.unreachable) == {"h4"} and not found.healthy
    assert {e.engine.host for e in found.engines if e.unit.state == "active"} == {"h1", "h2"}
    said = "Host h4 is unreachable, and with it prefill-d and decode-d: h4 did not answer within "
    assert [line for line in troubles(found) if "-d" in line] == [f"{said}{status.HOST_DEADLINE:g} s."]
    assert found.document()["unreachable"].keys() == {"h4"}
    assert found.seconds < status.HOST_DEADLINE + LIVING, f"{found.seconds:.1f} s"
