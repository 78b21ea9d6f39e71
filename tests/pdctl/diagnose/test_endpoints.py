"""Addresses in lines of every writer, and settings of a pair that differ."""

from __future__ import annotations

import pytest

from pdctl.adapters.traces import Event, Traces
from pdctl.diagnose.endpoints import Endpoint, crossed_rails, endpoint
from pdctl.diagnose.pairs import UNSET, compared, revision
from pdctl.diagnose.xids import xids


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("10:00:01 ZMQError: Address already in use (addr='tcp://localhost:5557')", ("localhost", 5557)),
        ("HTTPConnectionPool(host='10.0.0.11', port=32963): Max retries", ("10.0.0.11", 32963)),
        ("[Errno 98] error while attempting to bind on address ('0.0.0.0', 8998)", ("0.0.0.0", 8998)),
        ("while trying to connect to (10.0.0.1, 29500).", ("10.0.0.1", 29500)),
        ("connect [127.0.1.1]:38271: Connection refused", ("127.0.1.1", 38271)),
        ("Failed to connect to 192.168.50.3:8998: No route", ("192.168.50.3", 8998)),
        ("failed to listen on any local network address. port: 29500, useIpv6: false", ("", 29500)),
    ],
)
def test_the_address_that_a_line_names(line: str, at: tuple[str, int]) -> None:
    assert endpoint(line) == Endpoint(*at)


@pytest.mark.parametrize("line", ["[2026-05-01 10:00:01 TP0] Decode batch", "worker_pool.cpp:294] failed"])
def test_a_time_and_a_source_line_are_no_address(line: str) -> None:
    assert endpoint(line) is None


def _event(line: str, **values: str) -> Event:
    return Event("gpu.xid", "n1", None, 1, "dmesg:1", line, values=values)


def test_rails_are_crossed_when_no_line_joins_like_with_like() -> None:
    one = _event("local_nic: mlx5_2, peer_nic: 10.0.2.98:15992@mlx5_1, dest_rkey: 1")
    two = _event("local_nic: mlx5_1, peer_nic: 10.0.2.98:15992@mlx5_1, dest_rkey: 1")
    assert crossed_rails([one]) == "mlx5_2 to mlx5_1" and crossed_rails([one, two]) == ""


def test_an_echo_counts_as_the_xid_that_it_names() -> None:
    line = "NVRM: Xid (PCI:0000:dc:00): 45, pid=1, Ch 00000001 caused by previous Xid 149"
    assert [x.number for x in xids([_event(line, xid="45", device="0000:dc:00")])] == [149]


def test_what_is_not_shown_is_no_difference() -> None:
    mine = Traces(settings={"page_size": "64", "port": "1", "host": "a", "model": "/mnt/a/m"})
    theirs = Traces(
        settings={"page_size": "32", "port": "2", "host": "b", "model": "/data/m", "revision": "r"}
    )
    found = {d.name: (d.prefill, d.decode) for d in compared(mine, theirs)}
    assert found["page_size"] == ("64", "32") and found["revision"] == (UNSET, "r")
    assert "model" not in found and "host" not in found
    assert compared(mine, Traces()) == []


def test_a_cached_path_names_its_revision() -> None:
    assert revision(Traces(settings={"model": "/hf/models--org--m/snapshots/a24c/"})) == "a24c"
