"""Streams that outlive their decode: real engines, killed in the middle, and the client reads one answer."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.stack import Stack, stack, wait_for

QUICK = {"PD_HEARTBEAT_TIMEOUT": "2"}
LENGTH = 64
GREEDY = {"messages": [{"role": "user", "content": "Tell me a long story about a fox."}], "temperature": 0}
SAMPLED = {"prompt": "Once upon a time in a café", "temperature": 0.9, "top_p": 0.95, "seed": 11}
NATIVE = {"text": "The sea was", "sampling_params": {"temperature": 0, "ignore_eos": True}}


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory, smollm: Path) -> Iterator[Stack]:
    """A prefill and two decodes; the tests are in an order that needs few starts."""
    with stack(tmp_path_factory.mktemp("trio"), smollm) as s:
        for name in ("prefill-0", "decode-0", "decode-1"):
            s.engine(name, name.split("-")[0], env=QUICK)
        s.router()
        s.wait_ready()
        yield s


def events(trio: Stack, path: str, body: dict[str, Any]) -> list[Any]:
    """The documents of one stream through the router, `created` left out; its last line must be [DONE]."""
    extra = {"max_tokens": LENGTH, "ignore_eos": True, "stream_options": {"include_usage": True}}
    if path == "/generate":
        extra = {"sampling_params": {**body["sampling_params"], "max_new_tokens": LENGTH}}
    body = {**body, **extra, "stream": True}
    headers = {"X-Request-ID": path}
    with httpx.stream("POST", trio["router"].url + path, json=body, headers=headers, timeout=200.0) as answer:
        *lines, last = [line for line in answer.iter_lines() if line]
    assert answer.status_code == 200 and all(line.startswith("data: ") for line in lines), lines[-1]
    documents = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert len({d.pop("created", None) for d in documents if "error" not in d}) == 1
    return documents if last == "data: [DONE]" else [*documents, json.loads(last.removeprefix("data: "))]


def going(trio: Stack, at: str, tokens: int, streams: int = 1) -> None:
    """Until so many streams have this many tokens, all from one decode."""

    def check() -> bool:
        requests = httpx.get(f"{trio['router'].url}/v1/requests", timeout=3.0).json()["requests"]
        far = [r for r in requests if r["tokens_out"] >= tokens and r["legs"]["decode"]["engine"] == at]
        return len(far) == streams

    wait_for(f"{streams} streams on {at}", check, 120.0, every=0.02)


def counters(trio: Stack) -> dict[str, Any]:
    return dict(trio["router"].state()["counters"])


@pytest.fixture(scope="module")
def whole(trio: Stack) -> dict[str, list[Any]]:
    """What each stream is when nothing happens."""
    with ThreadPoolExecutor(3) as pool:
        return {path: stream.result() for path, stream in begin(trio, pool).items()}


def begin(trio: Stack, pool: ThreadPoolExecutor) -> dict[str, Future[list[Any]]]:
    wanted = {"/v1/chat/completions": GREEDY, "/v1/completions": SAMPLED, "/generate": NATIVE}
    return {path: pool.submit(events, trio, path, body) for path, body in wanted.items()}


def kill(trio: Stack, name: str) -> None:
    os.kill(trio[name].pid, signal.SIGKILL)
    popen = trio[name].popen
    assert popen is not None
    popen.wait(10.0)


def test_a_killed_decodes_streams_go_on_on_the_other_one(trio: Stack, whole: dict[str, list[Any]]) -> None:
    """Greedy and sampled by a seed: the same events, each once, as if nothing had happened."""
    trio.admin("router", "cordon", engine="decode-1", cordoned=True)
    with ThreadPoolExecutor(3) as pool:
        streams = begin(trio, pool)
        going(trio, "decode-0", 10, streams=3)
        trio.admin("router", "cordon", engine="decode-1", cordoned=False)
        kill(trio, "decode-0")
        for path, stream in streams.items():
            assert stream.result() == whole[path]
    assert (counters(trio)["resumed"], counters(trio)["requests_failed"]) == (3, {})
    trio.baseline("prefill-0", "decode-1")


def test_the_only_decode_is_killed_and_comes_back(trio: Stack, whole: dict[str, list[Any]]) -> None:
    """What comes while it is away waits for it."""
    with ThreadPoolExecutor(6) as pool:
        streams = begin(trio, pool)
        going(trio, "decode-1", 10, streams=3)
        kill(trio, "decode-1")
        plain = [pool.submit(trio.complete, "router", f"Number {n} is", 4, 200.0) for n in range(3)]
        wait_for("them to wait", lambda: trio["router"].state()["engines"][-1]["ready"] is False)
        trio["decode-1"].start()
        assert [answer.result().status_code for answer in plain] == [200] * 3
        for path, stream in streams.items():
            assert stream.result() == whole[path]
    assert (counters(trio)["resumed"], counters(trio)["requests_failed"]) == (6, {})
    trio.baseline("prefill-0", "decode-1")


def test_a_stream_that_nobody_takes_over_ends_with_the_reason(
    trio: Stack, whole: dict[str, list[Any]]
) -> None:
    trio.admin("router", "timeouts", router_hold=1)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(events, trio, "/v1/chat/completions", GREEDY)
        going(trio, "decode-1", 10)
        kill(trio, "decode-1")
        *had, error = stream.result()
    assert had == whole["/v1/chat/completions"][: len(had)] and len(had) >= 10
    assert error["error"]["code"] == "no_pair", error
    assert "Before that: prefill-0 -> decode-1 " in error["error"]["message"], error
    assert counters(trio)["requests_failed"] == {"no_pair": 1}
    trio.baseline("prefill-0")
