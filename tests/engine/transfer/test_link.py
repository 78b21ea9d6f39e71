"""The link between two leaders: who may link, who is refused, who counts as lost, who is fenced."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.core.errors import ConfigError, Exit, RequestError
from engine.core.types import FirstToken
from engine.transfer import messages as m
from engine.transfer.handshake import PeerKey
from tests.engine.transfer.harness import Engine, hand_over, linked_pair, until

ROOT = Path(__file__).parents[3]


def test_two_engines_link_and_hand_over(engine: Callable[..., Engine]) -> None:
    prefill, decode = linked_pair(engine, p_tp=3, d_tp=2)
    hand_over(prefill, decode, 1, [0, 1], [5, 6])
    until(lambda: decode.sink.of(1) == ["done", "quiet", "ready"], "decode has it")
    until(lambda: prefill.sink.of(1) == ["done", "quiet"], "prefill is done")
    row = prefill.peer()
    assert row["instance"] == "decode-0" and row["incarnation"] == decode.incarnation
    assert row["linked"] and row["transfers_ok"] == 1 and row["rooms_open"] == 0
    assert not row["stale"] and row["error"] is None
    assert decode.peer()["address"] == prefill.address


def test_a_wrong_token_is_refused_and_told(engine: Callable[..., Engine]) -> None:
    prefill = engine("prefill", "prefill-0", token=b"one")
    decode = engine("decode", "decode-0", peers=[prefill.address], token=b"two")
    until(lambda: "token" in str([r["error"] for r in decode.transfer.peers_document()]), "the reason shows")
    assert not prefill.linked() and prefill.transfer.peers_document() == []
    decode.transfer.request(4, "r", prefill.address)
    until(lambda: decode.sink.of(4) == ["link_failed", "quiet"], "a room fails at once")


@pytest.mark.parametrize("field", ["model", "dtype", "layout", "layers", "kv_heads", "head_dim"])
def test_a_fingerprint_that_differs_is_refused_by_name(engine: Callable[..., Engine], field: str) -> None:
    prefill = engine("prefill", "prefill-0")
    other = 7 if field in ("layers", "kv_heads", "head_dim") else "other"
    decode = engine("decode", "decode-0", peers=[prefill.address], fingerprint={field: other})
    text = f"{field} of decode-0 is {other}"
    until(lambda: text in str(decode.transfer.peers_document()), "the field is named")
    decode.transfer.request(4, "r", prefill.address)
    until(lambda: decode.sink.of(4) == ["peer_incompatible", "quiet"], "a room fails at once")


def test_two_prefills_do_not_link(engine: Callable[..., Engine]) -> None:
    """Roles are checked by the side that is dialed, whoever dials."""
    prefill = engine("prefill", "prefill-0")
    with socket.create_connection(("127.0.0.1", int(prefill.address.split(":")[1])), 5) as sock:
        sock.sendall(m.encode(m.Challenge(b"x" * 16)))
        sock.settimeout(5)
        while sock.recv(4096):
            pass  # the challenge of the prefill, then its close
    assert prefill.transfer.peers_document() == []


def test_garbage_and_silence_do_not_hurt(engine: Callable[..., Engine]) -> None:
    prefill = engine("prefill", "prefill-0", env={"PD_HANDSHAKE_TIMEOUT": "0.3"})
    port = int(prefill.address.split(":")[1])
    mute = socket.create_connection(("127.0.0.1", port), 5)
    for data in (b"GET / HTTP/1.1\r\n\r\n", struct.pack(">I", 2**31), struct.pack(">I", 3) + b"\xc1\xc1\xc1"):
        with socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.sendall(data)
            sock.settimeout(5)
            try:
                while sock.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    until(lambda: prefill.transfer.deadlines.fired().get("handshake") == 1, "the mute one is given up")
    mute.close()
    decode = engine("decode", "decode-0", peers=[prefill.address])
    until(lambda: decode.linked() and prefill.linked(), "a real peer still links")


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="Cannot listen") as caught:
            Engine("prefill", "prefill-0", port=taken.getsockname()[1])
    assert caught.value.exit == Exit.PORT_IN_USE


def test_decode_waits_for_a_prefill_that_starts_later(engine: Callable[..., Engine]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    decode = engine("decode", "decode-0", peers=[f"127.0.0.1:{port}"])
    until(lambda: "refused" in str(decode.transfer.peers_document()), "the refusal shows")
    prefill = engine("prefill", "prefill-0", port=port)
    until(lambda: decode.linked() and prefill.linked(), "linked by redial")


def test_an_unknown_address_is_dialed_on_request(engine: Callable[..., Engine]) -> None:
    prefill, decode = engine("prefill", "prefill-0"), engine("decode", "decode-0")
    hand_over(prefill, decode, 3, [1], [2])
    until(lambda: "ready" in decode.sink.of(3), "dialed, linked and handed over")


def test_a_room_fails_when_its_prefill_cannot_be_linked(engine: Callable[..., Engine]) -> None:
    decode = engine("decode", "decode-0", env={"PD_HANDSHAKE_TIMEOUT": "0.3"})
    decode.transfer.request(3, "r", "127.0.0.1:1")
    until(lambda: decode.sink.of(3) == ["link_failed", "quiet"], "the room failed")
    assert decode.transfer.deadlines.fired() == {"handshake": 1}


def test_an_address_that_never_links_is_forgotten(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests name addresses, so one that is of no use must not be dialed and shown for ever."""
    monkeypatch.setattr("engine.transfer.link.FORGET_SECONDS", 0.5)
    decode = engine("decode", "decode-0", env={"PD_HANDSHAKE_TIMEOUT": "0.3"}, peers=["127.0.0.1:2"])
    decode.transfer.request(3, "r", "127.0.0.1:1")
    shown = decode.transfer.peers_document
    until(lambda: {p["address"] for p in shown()} == {"127.0.0.1:1", "127.0.0.1:2"}, "both are dialed")
    until(lambda: [p["address"] for p in shown()] == ["127.0.0.1:2"], "only the configured one is left")


def test_a_new_life_of_decode_fences_the_old_one(engine: Callable[..., Engine]) -> None:
    """A freed process that still runs is refused: its place is taken."""
    prefill, old = linked_pair(engine)
    prefill.ranks.hold = True
    hand_over(prefill, old, 1, [0], [1])
    until(lambda: prefill.transfer.rooms()[1]["waiting_on"] == "transfer", "a write is open")
    new = engine("decode", "decode-0", peers=[prefill.address])
    until(lambda: new.linked(), "the new life is linked")
    until(lambda: prefill.sink.of(1) == ["peer_lost", "quiet"], "the old life's room failed")
    linked = [PeerKey("decode-0", new.incarnation)]
    until(lambda: prefill.transfer.linked() == linked, "prefill has the new life linked, and it alone")
    until(lambda: "taken this one's place" in str(old.transfer.peers_document()), "the old one is told")
    assert prefill.transfer.linked() == linked


def test_a_new_life_of_prefill_frees_decodes_pages(engine: Callable[..., Engine]) -> None:
    prefill, decode = linked_pair(engine)
    prefill.ranks.hold = True
    hand_over(prefill, decode, 1, [0], [1])
    until(lambda: prefill.transfer.rooms()[1]["waiting_on"] == "transfer", "a write is open")
    prefill.stop()
    until(lambda: decode.sink.of(1)[:1] == ["peer_lost"], "the room failed at once", 2)
    engine("prefill", "prefill-0", port=int(prefill.address.split(":")[1]))
    until(lambda: decode.sink.of(1) == ["peer_lost", "quiet"], "the old life is fenced")
    until(lambda: decode.linked(), "linked with the new life")


def test_a_prefill_whose_address_refuses_is_gone(engine: Callable[..., Engine]) -> None:
    prefill, decode = linked_pair(engine)
    prefill.ranks.hold = True
    hand_over(prefill, decode, 1, [0], [1])
    until(lambda: prefill.transfer.rooms()[1]["waiting_on"] == "transfer", "a write is open")
    prefill.stop()
    until(lambda: decode.sink.of(1) == ["peer_lost", "quiet"], "its pages are free")


def test_prealloc_failure_on_decode_ends_the_prefill_leg(engine: Callable[..., Engine]) -> None:
    prefill, decode = linked_pair(engine, d_env={"PD_DECODE_PREALLOC_TIMEOUT": "0.2"})
    prefill.transfer.open(1, "p")
    decode.transfer.request(1, "d", prefill.address)
    until(lambda: prefill.sink.of(1) == ["prealloc_timeout", "quiet"], "prefill was told why")
    assert decode.sink.of(1) == ["prealloc_timeout", "quiet"]


def test_lose_want_and_lose_done_end_at_decodes_deadline(engine: Callable[..., Engine]) -> None:
    env = {"PD_DECODE_TRANSFER_TIMEOUT": "0.3"}
    prefill, decode = linked_pair(engine, env=env)
    for room, fault in ((1, "lose-want"), (2, "lose-done")):
        prefill.faults.arm(fault, count=1)
        hand_over(prefill, decode, room, [room], [room])
        until(
            lambda r=room: prefill.sink.of(r) == ["kv_transfer_timeout", "quiet"],
            f"{fault}: prefill was told",
        )
        until(lambda r=room: decode.sink.of(r) == ["kv_transfer_timeout", "quiet"], f"{fault}: decode ended")
    until(lambda: decode.transfer.deadlines.fired() == {"transfer": 2}, "both are counted")
    assert prefill.transfer.deadlines.fired() == {}
    assert prefill.faults.document()["hits"] == {"lose-want": 1, "lose-done": 1}
    hand_over(prefill, decode, 3, [3], [3])
    until(lambda: "ready" in decode.sink.of(3), "the next room is served")


def test_legacy_bootstrap_pins_every_room_after_a_decode_restart(engine: Callable[..., Engine]) -> None:
    env = {"PD_PREFILL_INFLIGHT_TIMEOUT": "1"}
    prefill, old = linked_pair(engine, legacy=True, p_env=env)
    hand_over(prefill, old, 1, [0], [1])
    until(lambda: prefill.sink.of(1) == ["done", "quiet"], "well while nobody restarts")
    prefill.ranks.hold = True
    old.stop()
    new = engine("decode", "decode-0", peers=[prefill.address], env={"PD_DECODE_TRANSFER_TIMEOUT": "0.5"})
    until(lambda: new.linked() and prefill.linked(), "both believe to be linked")
    assert prefill.peer()["stale"] and prefill.peer()["incarnation"] == new.incarnation
    hand_over(prefill, new, 2, [2], [3])
    until(lambda: prefill.transfer.rooms()[2]["waiting_on"] == "transfer", "pinned")
    until(lambda: new.sink.of(2)[:1] == ["kv_transfer_timeout"], "decode gives up, and prefill hears nothing")
    until(lambda: prefill.sink.of(2) == ["kv_transfer_timeout", "quiet"], "only the watchdog ends it")
    until(lambda: prefill.transfer.deadlines.fired().get("inflight") == 1, "it is counted")


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_new_link_on_demand_ends_its_rooms_and_adds_the_agents_anew(
    engine: Callable[..., Engine], side: str
) -> None:
    prefill, decode = linked_pair(engine)
    prefill.ranks.hold = True
    hand_over(prefill, decode, 1, [0], [1])
    until(lambda: prefill.transfer.rooms()[1]["waiting_on"] == "transfer", "a write is open")
    asked, peer = (prefill, "decode-0") if side == "prefill" else (decode, "prefill-0")
    assert asked.transfer.relink(peer) == {"peer": peer, "linked": True, "rooms": 1}
    until(lambda: prefill.sink.of(1) == ["peer_lost", "quiet"], "prefill's leg failed")
    until(lambda: decode.sink.of(1) == ["peer_lost", "quiet"], "decode's leg failed")
    until(lambda: prefill.linked() and decode.linked(), "the same lives are linked again")
    assert prefill.peer()["incarnation"] == decode.incarnation and prefill.peer()["error"] is None
    kinds = [type(command).__name__ for command in asked.ranks.log]
    assert kinds.count("AddPeer") == 2 and "RemovePeer" in kinds
    prefill.ranks.hold = False
    hand_over(prefill, decode, 2, [2], [3])
    until(lambda: "ready" in decode.sink.of(2), "the next room is served")


def test_bytes_move_over_a_new_link(engine: Callable[..., Engine]) -> None:
    prefill, decode = linked_pair(engine, real=True, p_tp=2)
    for room in (1, 2, 3):
        hand_over(prefill, decode, room, [room], [room])
        until(lambda r=room: "ready" in decode.sink.of(r), f"room {room} is served")
        lives = [p.transfer.relink(o.instance)["linked"] for p, o in ((prefill, decode), (decode, prefill))]
        assert lives[0]
        for side in (decode, prefill):
            side.settle()
        until(lambda: prefill.linked() and decode.linked(), "linked again")


def test_a_new_link_with_one_that_was_never_there_is_dialed_or_refused(
    engine: Callable[..., Engine],
) -> None:
    decode = engine("decode", "decode-0", peers=["127.0.0.1:1"])
    assert decode.transfer.relink("prefill-0", "127.0.0.1:1")["linked"] is False
    with pytest.raises(RequestError, match="knows no prefill-9") as caught:
        decode.transfer.relink("prefill-9", "127.0.0.1:9")
    assert (caught.value.code, caught.value.status) == ("unknown_peer", 404)


def _since(engine: Engine) -> float:
    return time.monotonic() - float(str(engine.peer()["since_age_s"]))


def test_a_new_link_does_not_mend_what_legacy_bootstrap_keeps(engine: Callable[..., Engine]) -> None:
    prefill, old = linked_pair(engine, legacy=True)
    old.stop()
    new = engine("decode", "decode-0", peers=[prefill.address])
    until(lambda: new.linked() and prefill.peer()["stale"], "the old life's agents are kept")
    for asked, peer in ((prefill, "decode-0"), (new, "prefill-0")):
        began = time.monotonic()
        asked.transfer.relink(peer)
        until(lambda a=asked, b=began: a.linked() and _since(a) > b, "linked anew")
    until(lambda: prefill.linked() and new.linked(), "both believe to be linked")
    kinds = [type(command).__name__ for command in prefill.ranks.log]
    assert prefill.peer()["stale"] and kinds.count("AddPeer") == 1 and "RemovePeer" not in kinds


@pytest.fixture
def peer_process(engine: Callable[..., Engine]) -> Iterator[tuple[Engine, subprocess.Popen[bytes]]]:
    """A prefill here and a decode with real agents in a process of its own, linked."""
    env = {"PD_HEARTBEAT_TIMEOUT": "2", "PD_HANDSHAKE_TIMEOUT": "3", "PD_PREFILL_INFLIGHT_TIMEOUT": "30"}
    prefill = engine("prefill", "prefill-0", real=True, env=env)
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.transfer.decode_process", prefill.address],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    until(prefill.linked, "the process is linked", 60)
    yield prefill, child
    child.kill()
    child.wait()


def test_a_frozen_peer_is_lost_at_the_heartbeat_deadline_and_resumes(
    peer_process: tuple[Engine, subprocess.Popen[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    prefill, child = peer_process
    first = prefill.peer()["incarnation"]
    os.kill(child.pid, signal.SIGSTOP)
    prefill.transfer.open(1000, "stuck")
    until(lambda: not prefill.linked(), "silence is noticed")
    assert "PD_HEARTBEAT_TIMEOUT" in str(prefill.peer()["error"])
    assert prefill.transfer.deadlines.fired()["heartbeat"] == 1
    (line,) = [text for text in caplog.messages if text.endswith("deadline=PD_HEARTBEAT_TIMEOUT=2")]
    assert line.startswith("peer_lost ") and f" peer=decode-0/{first} " in line
    os.kill(child.pid, signal.SIGCONT)
    until(prefill.linked, "the same life is linked again")
    assert prefill.peer()["incarnation"] == first
    prefill.transfer.abort(1000, "test")


def test_writes_to_a_frozen_peer_end_with_it_and_pages_come_back(
    peer_process: tuple[Engine, subprocess.Popen[bytes]],
) -> None:
    """Its rooms fail at the heartbeat deadline; source pages are quiet once the edge is given up."""
    prefill, child = peer_process
    for room in range(1, 6):
        _computed(prefill, room)
    until(lambda: prefill.sink.of(5) == ["done", "quiet"], "the process takes rooms 1..5")
    prefill.transfer.open(6, "p6")
    until(lambda: prefill.transfer.rooms()[6]["waiting_on"] == "transfer", "decode has asked for room 6")
    os.kill(child.pid, signal.SIGSTOP)
    _pages(prefill, 6)
    until(lambda: prefill.sink.of(6) == ["peer_lost", "quiet"], "failed, and quiet without the peer")
    assert not prefill.linked()
    os.kill(child.pid, signal.SIGCONT)
    until(prefill.linked, "the same life is linked again")
    _computed(prefill, 70)
    assert prefill.transfer.abort(70, "test")
    until(lambda: prefill.sink.of(70) == ["aborted", "quiet"], "the prefill is well")


def test_writes_to_a_killed_peer_fail_at_once(peer_process: tuple[Engine, subprocess.Popen[bytes]]) -> None:
    prefill, child = peer_process
    prefill.faults.arm("stall-transfer", count=1)
    _computed(prefill, 7)
    until(lambda: prefill.transfer.rooms()[7]["waiting_on"] == "transfer", "a write is held")
    child.kill()
    child.wait()
    until(lambda: prefill.sink.of(7) == ["peer_lost", "quiet"], "failed and quiet")


def _computed(prefill: Engine, room: int) -> None:
    prefill.transfer.open(room, f"p{room}")
    _pages(prefill, room)


def _pages(prefill: Engine, room: int) -> None:
    prefill.transfer.computed(room, 4, [2 * (room % 8), 2 * (room % 8) + 1], FirstToken(token=1))
