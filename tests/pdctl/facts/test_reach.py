"""Who answers at an address, and what size of packet gets there: two ends of the tool on this machine."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pdctl.facts import reach
from pdctl.facts.ask import listen
from pdctl.facts.reach import Reached
from pdctl.transport.local import LocalTransport

Tell = Callable[..., Any]
ADDRESS = "127.0.0.1"


class Ear(threading.Thread):
    """A host that listens, in the background."""

    def __init__(self, tcp: list[list[Any]], udp: list[list[Any]], visits: int = 1) -> None:
        super().__init__(daemon=True)
        self.ear = {"nonce": "n0nce", "tcp": tcp, "udp": udp, "seconds": 15.0, "visits": visits}
        self.heard: dict[str, Any] = {}
        self.start()

    def run(self) -> None:
        self.heard = listen(LocalTransport("here"), sys.executable, self.ear, 30.0)


@pytest.fixture
def spare(tell: Tell) -> list[int]:
    found: list[int] = tell("spare", address=ADDRESS, count=2)
    assert len(set(found)) == 2
    return found


def go(
    tell: Tell, targets: list[dict[str, Any]], bye: list[int], seconds: float = 10.0
) -> dict[str, Reached]:
    goodbye = [[ADDRESS, bye]] if bye else []
    found = reach.parse(tell("reach", targets=targets, goodbye=goodbye, seconds=seconds))
    assert isinstance(found, dict)
    return found


def test_the_one_who_must_answer_answers_and_stops_when_all_have_been(tell: Tell, spare: list[int]) -> None:
    ear = Ear([[ADDRESS, p] for p in spare], [[ADDRESS, spare[0]]])
    targets = [{"address": ADDRESS, "port": p, "nonce": "n0nce"} for p in spare]
    targets[0]["path"] = [1472, 8000]
    found = go(tell, targets, [9, spare[1]])
    assert all(found[reach.key(ADDRESS, p)].ok for p in spare)
    path = found[reach.key(ADDRESS, spare[0])].path
    assert path is not None and path.small and path.there and path.back
    ear.join(10.0)
    assert ear.heard == {"errors": {}, "visits": 1}, "it ends at the goodbye, long before its time"


def test_a_packet_too_large_for_the_interface_does_not_get_there(tell: Tell, spare: list[int]) -> None:
    Ear([[ADDRESS, spare[0]]], [[ADDRESS, spare[0]]])
    # The loopback interface carries 65536 bytes, a datagram at most 65507 of payload.
    target = {"address": ADDRESS, "port": spare[0], "nonce": "n0nce", "path": [65600, 1472]}
    path = go(tell, [target], [spare[0]])[reach.key(ADDRESS, spare[0])].path
    assert path is not None and path.small and path.back and not path.there


def test_a_stranger_at_the_address_is_told_from_the_one_who_must_answer(tell: Tell) -> None:
    with socket.create_server((ADDRESS, 0)) as stranger:
        port = stranger.getsockname()[1]

        def answer() -> None:
            visitor, _ = stranger.accept()
            visitor.sendall(b"220 hello\r\n")
            visitor.close()

        threading.Thread(target=answer, daemon=True).start()
        found = go(tell, [{"address": ADDRESS, "port": port, "nonce": "n0nce"}], [])
    assert found[reach.key(ADDRESS, port)].error == "somebody else answers there"


def test_refused_is_final_where_nobody_is_about_to_listen(tell: Tell) -> None:
    found = go(tell, [{"address": ADDRESS, "port": 9}], [], seconds=20.0)
    assert found[f"{ADDRESS}:9"].error == reach.REFUSED
    assert found[f"{ADDRESS}:9"].seconds < 5.0


def test_gently_a_connection_that_is_there_is_proof_and_nobody_is_disturbed(tell: Tell) -> None:
    with socket.create_server((ADDRESS, 0)) as peer:
        port = peer.getsockname()[1]
        target = {"address": ADDRESS, "port": port, "gently": True}
        with socket.create_connection((ADDRESS, port)):
            visitor, _ = peer.accept()
            assert go(tell, [target], [])[reach.key(ADDRESS, port)].ok
            visitor.close()
        peer.setblocking(False)
        with pytest.raises(BlockingIOError):
            peer.accept()
        assert go(tell, [target], [])[reach.key(ADDRESS, port)].ok
        peer.accept()[0].close()  # without one it is a real connect


def test_a_taken_port_and_a_strange_address_are_the_ears_errors(tell: Tell, spare: list[int]) -> None:
    with socket.create_server((ADDRESS, 0)) as server:
        taken = server.getsockname()[1]
        ear = Ear([[ADDRESS, spare[0]], [ADDRESS, taken], ["198.51.100.7", 80]], [])
        go(tell, [{"address": ADDRESS, "port": spare[0], "nonce": "n0nce"}], [spare[0]])
        ear.join(10.0)
    assert ear.heard["errors"] == {
        f"{ADDRESS}:{taken}": "taken",
        "198.51.100.7:80": "no interface of this host has that address",
    }
