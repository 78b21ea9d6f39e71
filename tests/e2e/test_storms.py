"""Storms over a real pair. Of aborts, from clients, the router and both engines, in whatever stage they hit:
every page comes back and nobody is forgotten. Of hostile clients: memory stays bounded. And the next answer
is right."""

from __future__ import annotations

import socket

import httpx
import psutil
import pytest

from tests.e2e.stack import Stack, wait_for
from tests.e2e.storm import Storm, counters

ENGINES = ("prefill-0", "decode-0")
PROMPT = "The storm is over, and the answer is"


@pytest.mark.parametrize("total", [150, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.timeout(1500)
def test_a_storm_of_aborts_loses_no_page_and_no_request(pair: Stack, total: int) -> None:
    right = pair.ids("single", PROMPT, 12)
    before = {name: counters(pair, name) for name in ENGINES}
    storm = Storm(pair, total)
    pair.admin("prefill-0", "faults", name="slow-transfer", armed=True, value=0.15)
    try:
        storm.run()
    finally:
        pair.admin("prefill-0", "faults", name="slow-transfer", armed=False)
    pair.baseline(*ENGINES, timeout=120.0)
    print(dict(storm.ended), dict(storm.stages), dict(storm.aborted))

    def forgotten() -> list[str]:
        rows = httpx.get(f"{pair['router'].url}/v1/requests", timeout=10.0).json()["requests"]
        return [row["id"] for row in rows]

    wait_for("the ledger to be empty", lambda: not forgotten(), 30.0)
    assert pair.ids("router", PROMPT, 12) == right
    assert sum(storm.ended.values()) == total and set(storm.ended) <= {"done", "left", "aborted"}
    assert storm.ended["done"] >= total // 5, "nobody aborted these"
    assert storm.ended["aborted"] >= total // 10 and storm.ended["left"] >= total // 20
    assert len(storm.stages) >= 4, f"aborts hit {dict(storm.stages)}"
    for name in ENGINES:

        def all_ended(name: str = name) -> dict[str, int]:
            """The counts, once the published ones have caught up with the last answer."""
            now = counters(pair, name).items()
            new = {key: value - before[name][key] for key, value in now}
            ends = new["done"] + new["aborted"] + new["failed"]
            return new if new["received"] == ends else {}

        new = wait_for(f"every request of {name} to have one end", all_ended, 10.0)
        assert new["done"] >= storm.ended["done"] and new["aborted"] > 0, (name, new)
        if name == "prefill-0":
            assert new["reused"] > 0, "no two of them had a page in common"
    totals = [pair[name].state()["pages"] for name in ENGINES]
    assert all(pages["quarantined"] == 0 for pages in totals)


BOMBS = {
    "a million tokens": b'{"input_ids": [' + b",".join([b"7"] * 1_000_000) + b"]}",
    "a long text": b'{"text": "' + b"word " * 800_000 + b'"}',
    "deep arrays": b'{"text": ' + b"[" * (4 << 20),
    "many lists": b'{"text": [' + b",".join([b"[]"] * 1_000_000) + b"]}",
    "too large": b'{"text": "' + b"a" * (9 << 20) + b'"}',
}


def memory(pair: Stack, name: str) -> int:
    """Resident bytes of an engine's or router's process and its ranks."""
    top = psutil.Process(pair[name].pid)
    return sum(p.memory_info().rss for p in (top, *top.children()))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("at", ["router", pytest.param("single", marks=pytest.mark.slow)])
def test_hostile_clients_are_answered_bounded_and_keep_nobody_out(pair: Stack, at: str) -> None:
    """Bombs, 2,000 connections that say nothing and 50 that stop within a head or a body."""
    right, url = pair.ids("single", PROMPT, 8), pair[at].url
    host, _, port = url.removeprefix("http://").partition(":")
    for body in BOMBS.values():  # what is kept for good after the first of each is not what is looked for
        httpx.post(f"{url}/generate", content=body, timeout=120.0)
    before = memory(pair, at)
    socks = [socket.create_connection((host, int(port)), timeout=60) for _ in range(2000)]
    try:
        for sock in socks[:25]:
            sock.sendall(b"POST /generate HTTP/1.1\r\nhost: x\r\n")
        for sock in socks[25:50]:
            sock.sendall(b'POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 999\r\n\r\n{"text": ')
        for name, body in BOMBS.items():
            answer = httpx.post(f"{url}/generate", content=body, timeout=120.0)
            assert 400 <= answer.status_code < 500, (name, answer.status_code, answer.text[:200])
            assert answer.json()["error"]["code"] and answer.json()["error"]["message"], name
        for path in ("/admin/abort", "/admin/drain"):
            wrong = httpx.post(
                f"{url}{path}", json={}, headers={"Authorization": "Bearer wrong"}, timeout=60.0
            )
            assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "token_wrong")
        assert pair.ids(at, PROMPT, 8) == right
        assert memory(pair, at) - before < 300 << 20
        assert b"408" in socks[0].recv(4096), "the head that did not come has a deadline"
    finally:
        for sock in socks:
            sock.close()
    assert pair.ids(at, PROMPT, 8) == right
