"""The measuring instruments themselves: client, statistics, process handling, the peer's shim and proxy."""

from __future__ import annotations

import asyncio
import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from tests.bench import deploy, peer_venv, serving, ssh, supervise, transfer, vllm_proxy
from tests.bench.deploy_site import Life
from tests.bench.load import Target, closed_loop, one, prompts
from tests.bench.machine import Meter
from tests.bench.procs import BenchError, OutOfTime, Procs, free_ports, within
from tests.bench.stats import percentile, show, spread, table

HERE = Path(__file__).parent


def sse(*events: object) -> list[bytes]:
    return [f"data: {json.dumps(e) if not isinstance(e, str) else e}\n\n".encode() for e in events]


TOKENS = [{"choices": [{"text": "a"}]}, {"choices": [{"text": "b"}]}, {"choices": [{"text": "c"}]}]
USAGE = {"choices": [], "usage": {"completion_tokens": 3}}


@contextmanager
def server(parts: list[bytes], status: int = 200, chunked: bool = True):
    """A raw HTTP server on its own loop; each part is sent by itself. Yields (url, bodies received)."""
    loop, bodies = asyncio.new_event_loop(), []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(next(x for x in head.split(b"\r\n") if x.startswith(b"Content-Length")).split(b":")[1])
        bodies.append(json.loads(await reader.readexactly(size)))
        coding = "Transfer-Encoding: chunked\r\n" if chunked else ""
        writer.write(f"HTTP/1.1 {status} X\r\n{coding}\r\n".encode())
        for part in parts:
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n" if chunked else part)
            await writer.drain()
        writer.write(b"0\r\n\r\n" if chunked else b"")
        writer.close()

    listening = loop.run_until_complete(asyncio.start_server(handle, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", bodies
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        listening.close()
        loop.close()


@pytest.mark.parametrize("chunked", [True, False])
def test_a_stream_gives_first_token_gaps_and_the_servers_own_count(chunked):
    with server(sse(*TOKENS, USAGE, "[DONE]"), chunked=chunked) as (url, bodies):
        sample = asyncio.run(one(Target(url, "m", {"bootstrap_room": 7}), [1, 2], 3))
    assert sample.error is None and sample.tokens == 3 and len(sample.itl) == 2
    assert 0 < sample.ttft <= sample.seconds
    assert bodies[0]["prompt"] == [1, 2] and bodies[0]["ignore_eos"] and bodies[0]["bootstrap_room"] == 7


def test_an_event_split_over_two_parts_is_one_event():
    (event,) = sse(TOKENS[0])
    with server([event[:9], event[9:], *sse(USAGE)]) as (url, _):
        sample = asyncio.run(one(Target(url, "m"), [1], 3))
    assert sample.error is None and sample.itl == [] and sample.tokens == 3


@pytest.mark.parametrize(
    ("parts", "status", "word"),
    [([b'{"error": {"code": "no_pair"}}'], 503, "no_pair"), (sse({"error": {"code": "gone"}}), 200, "gone")],
)
def test_a_failure_is_a_sample_with_the_servers_words(parts, status, word):
    with server(parts, status) as (url, _):
        sample = asyncio.run(one(Target(url, "m"), [1], 3))
    assert sample.error is not None and word in sample.error


def test_a_server_that_is_not_there_is_a_sample_with_an_error():
    (port,) = free_ports(1)
    assert asyncio.run(one(Target(f"http://127.0.0.1:{port}", "m"), [1], 3)).error is not None


def test_the_closed_loop_sends_all_work_once():
    work = prompts(1, 7, 4)
    with server(sse(*TOKENS, USAGE)) as (url, bodies):
        point = closed_loop(Target(url, "m"), work, 3, 3)
    assert len(point.good) == 7 and not point.errors
    assert sorted(b["prompt"] for b in bodies) == sorted(work)
    assert point.tokens_per_s == pytest.approx(21 / point.wall)


def test_two_sides_get_the_same_work_in_turn_and_their_ratio_is_said():
    plan = serving.Plan((1, 2), prompt=4, output=3, rounds=2)
    with server(sse(*TOKENS, USAGE)) as (one_url, first), server(sse(*TOKENS, USAGE)) as (two_url, second):
        sides = {"ours": Target(one_url, "m"), "theirs": Target(two_url, "m")}
        levels = serving.measure(sides, {"ours": [], "theirs": []}, plan)
    assert [b["prompt"] for b in first] == [b["prompt"] for b in second]
    assert len(first) == 2 + 2 * (4 + 4)  # warm-up, rounds * requests of each level
    assert all(len(lv.points) == 2 and lv.values()["tokens_per_s"] and not lv.errors for lv in levels)
    assert [s.partition(":")[0] for s in serving.ratios(levels, "ours", "theirs")] == [
        "1 clients, ours over theirs",
        "2 clients, ours over theirs",
    ]
    json.dumps([lv.document() for lv in levels])


def test_an_answer_of_another_length_is_a_failure_and_a_side_without_answers_ends_the_run(monkeypatch):
    with server(sse(*TOKENS, USAGE)) as (url, _):
        point = closed_loop(Target(url, "m"), prompts(1, 2, 4), 1, 3)
        assert not serving.whole(point, 3).errors
        assert serving.whole(point, 4).errors == ["3 tokens instead of 4"] * 2
        alone, plan = {"ours": Target(url, "m")}, serving.Plan((1,), 4, 4, 1)
        with pytest.raises(BenchError, match="ours did not serve its warm-up: 3 tokens instead of 4"):
            serving.measure(alone, {}, plan)
        monkeypatch.setattr(serving, "warm", lambda sides, plan: plan)
        with pytest.raises(BenchError, match="ours answered none of 4 requests: 3 tokens instead of 4"):
            serving.measure(alone, {}, plan)


def test_a_plan_too_long_for_this_machine_loses_its_highest_levels_and_says_so(monkeypatch, capsys):
    plan = serving.Plan((1, 2), prompt=4, output=3, rounds=2)
    with server(sse(*TOKENS, USAGE)) as (url, _):
        assert serving.warm({"ours": Target(url, "m")}, plan) == plan
        monkeypatch.setattr(serving, "BUDGET", 0.0)
        assert serving.warm({"ours": Target(url, "m")}, plan).clients == (1,)
    assert "2 rounds with 1 clients" in capsys.readouterr().err


def test_a_part_that_does_not_end_is_ended_with_where_it_was():
    said = r"serving did not end within 0.2 s; it was in test_a_part_.*py:\d+"
    with pytest.raises(OutOfTime, match=said), within(0.2, "serving"):
        threading.Event().wait(30)
    with within(0.2, "serving"):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.fixture
def venvs(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_venv, "CACHE", tmp_path)
    (tmp_path / "peer" / "bin").mkdir(parents=True)
    monkeypatch.setattr(peer_venv.sys, "executable", "/bin/true")  # stands for `python -m venv`

    def pip(script: str) -> None:
        python = tmp_path / "peer" / "bin" / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)

    return pip


def test_a_peer_is_installed_once_and_anew_when_its_pins_change(venvs, tmp_path, capsys):
    venvs(f"echo $* >>{tmp_path}/said")
    for pins in ("a==1", "a==1", "a==2"):
        peer_venv.ensure("peer", [["install", pins]], tmp_path, 30)
    assert (tmp_path / "said").read_text().splitlines() == ["-m pip install a==1", "-m pip install a==2"]
    assert capsys.readouterr().err.count("once, within 30 s") == 2


@pytest.mark.parametrize(
    ("script", "seconds", "said"),
    [("exit 1", 30, r"installed: .* failed"), ("exec sleep 60", 0.3, r"installed in time: .* still running")],
)
def test_a_peer_that_cannot_be_installed_is_a_sentence_and_no_wait(venvs, tmp_path, script, seconds, said):
    venvs(script)
    with pytest.raises(BenchError, match=said):
        peer_venv.ensure("peer", [["install", "a==1"]], tmp_path, seconds)
    assert not peer_venv.ready("peer", [["install", "a==1"]])


def test_another_run_that_installs_is_waited_for_not_for_ever(venvs, tmp_path):
    with open(tmp_path / "peer" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BenchError, match=r"another run that installs .* did not end in time"):
            peer_venv.ensure("peer", [["install", "a==1"]], tmp_path, 0.3)


def test_prompts_are_the_same_for_both_sides_and_differ_between_seeds():
    assert prompts(3, 4, 16) == prompts(3, 4, 16) != prompts(4, 4, 16)


def test_statistics():
    assert percentile([5, 1, 4, 2, 3], 0.5) == 3 and percentile(range(1, 101), 0.99) == 99
    assert math.isnan(percentile([], 0.5)) and percentile([2.0], 0.99) == 2.0
    assert spread([3, 1, 2]) == {"median": 2, "min": 1, "max": 3, "n": 3}
    assert show([0.001, 0.003], 1e3) == "2.0 [1.0..3.0]" and show([]) == "-"
    assert table(["a", "bb"], [["x", "1"]]).splitlines()[-1] == "x   1"


def test_processes_end_with_the_block_even_when_they_ignore_sigterm(tmp_path):
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    with pytest.raises(RuntimeError, match="boom"), Procs(tmp_path) as procs:
        procs.patience = 0.5
        pid = procs.start("stubborn", [sys.executable, "-c", code])
        procs.wait("it", lambda: "up" in procs.tail("stubborn"), 30)
        raise RuntimeError("boom")
    assert not psutil.pid_exists(pid)


def test_processes_end_with_a_benchmark_that_is_told_to_end(tmp_path):
    """As `timeout` and a CI runner do it; they have sessions of their own and would outlive it."""
    body = (
        "import time; from pathlib import Path; from tests.bench.procs import Procs, end_on_sigterm\n"
        "end_on_sigterm()\n"
        f"with Procs(Path({str(tmp_path)!r})) as procs:\n"
        "    print(procs.start('server', ['sleep', '300']), flush=True)\n"
        "    time.sleep(300)\n"
    )
    with subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        server = int(bench.stdout.readline())
        bench.terminate()
        assert bench.wait(30) == 128 + signal.SIGTERM
    assert not psutil.pid_exists(server)


def test_the_meter_tells_a_busy_process_from_an_idle_one(tmp_path):
    with Procs(tmp_path) as procs:
        busy = procs.start("busy", [sys.executable, "-c", "while True: pass"])
        sleep = "import time; print('up', flush=True); time.sleep(600)"
        idle = procs.start("idle", [sys.executable, "-c", sleep])
        procs.wait("it", lambda: "up" in procs.tail("idle"), 30)  # starting up is work too
        meter = Meter({"busy": [busy], "idle": [idle], "gone": [2**22 + 1]})
        procs.wait("work", lambda: meter.read()["busy"] > 0, 60)
        read = meter.read()
    assert read["busy"] > read["idle"] and read["gone"] == 0.0 and read["others"] >= 0.0


def test_a_process_that_ends_too_early_is_named_with_its_last_words(tmp_path):
    with Procs(tmp_path) as procs:
        procs.start("short", [sys.executable, "-c", "print('no model here'); raise SystemExit(74)"])
        with pytest.raises(BenchError, match="short ended with 74: no model here"):
            procs.wait("it", lambda: False, 30)


def test_the_shim_gives_nixls_progress_thread_a_pause(tmp_path):
    package = tmp_path / "nixl_fake"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_bindings.py").write_text(
        "def nixlAgent(name, config): return (name, config.pthrDelay)\nX = 3\n"
    )
    (package / "_api.py").write_text("from . import _bindings as nixlBind\n")
    code = (
        "import types, nixl_fake._api as a;"
        "print(a.nixlBind.nixlAgent('n', types.SimpleNamespace(pthrDelay=0)), a.nixlBind.X)"
    )
    env = {**os.environ, "PYTHONPATH": f"{HERE / 'vllm_site'}:{tmp_path}"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "('n', 500) 3", done.stderr


def test_the_proxy_asks_prefill_for_one_token_and_hands_its_answer_to_decode(monkeypatch):
    seen: dict[str, dict[str, object]] = {}

    async def prefill(request: Request) -> JSONResponse:
        seen["prefill"] = await request.json()
        return JSONResponse({"kv_transfer_params": {"remote_block_ids": [4, 2]}})

    async def decode(request: Request) -> StreamingResponse:
        seen["decode"] = await request.json()
        return StreamingResponse(iter(sse(*TOKENS)), media_type="text/event-stream")

    apps = {
        "http://p": Starlette(routes=[Route("/v1/completions", prefill, methods=["POST"])]),
        "http://d": Starlette(routes=[Route("/v1/completions", decode, methods=["POST"])]),
    }
    real = vllm_proxy.httpx.AsyncClient

    def client(base_url: str, **more: object) -> object:
        return real(base_url=base_url, transport=vllm_proxy.httpx.ASGITransport(apps[base_url]))

    monkeypatch.setattr(vllm_proxy.httpx, "AsyncClient", client)
    with TestClient(vllm_proxy.build("http://p", "http://d")) as proxy:
        answer = proxy.post("/v1/completions", json={"prompt": "x", "max_tokens": 9, "stream": True})
    assert answer.status_code == 200 and answer.text.count("data:") == 3
    assert seen["prefill"]["max_tokens"] == 1 and seen["prefill"]["stream"] is False
    assert seen["prefill"]["kv_transfer_params"]["do_remote_decode"] is True
    assert seen["decode"]["max_tokens"] == 9
    assert seen["decode"]["kv_transfer_params"] == {"remote_block_ids": [4, 2]}


FIRST = {"prefill-0": Life(1, False, 1), "decode-0": Life(2, False, 1), "router": Life(3, False, 1)}
CHANGED = {**FIRST, "router": Life(4, True, 1)}


def test_a_deploy_counts_only_when_exactly_the_right_units_were_started():
    deploy.check("x", "first", {}, FIRST)
    deploy.check("x", "no-op", FIRST, FIRST)
    deploy.check("x", "changed", FIRST, CHANGED)


@pytest.mark.parametrize(
    ("kind", "after", "word"),
    [
        ("no-op", {**FIRST, "decode-0": Life(9, False, 1)}, "decode-0 was started"),
        ("changed", FIRST, "nothing was started"),
        ("changed", {**CHANGED, "decode-0": Life(9, False, 1)}, "decode-0, router was started"),
        ("changed", {**FIRST, "router": Life(4, False, 1)}, "nothing has the new variable"),
        ("changed", {**FIRST, "router": Life(4, True, 0)}, "no request went through the router"),
    ],
)
def test_a_deploy_that_did_something_else_is_not_timed(kind, after, word):
    with pytest.raises(BenchError, match=word):
        deploy.check("x", kind, FIRST, after)


def test_deploys_are_compared_by_their_medians():
    times = {
        who: {kind: [s, s, 100 * s] for kind in deploy.KINDS}
        for who, s in (("pdctl", 1.0), ("pyinfra", 2.0), ("ansible", 8.0))
    }
    text, document = deploy.report(times, {"imports": [0.5]})
    assert document["ratios"]["no-op"] == {"pyinfra": 2.0, "ansible": 8.0} and "imports 0.50" in text
    json.dumps(document)


def test_a_supervisor_is_measured_over_a_small_simulated_fleet(tmp_path):
    text, document = supervise.run(supervise.Plan(engines=16, looks=3, warm=1, every=0.2), tmp_path)
    assert document["engines"] == 16 and document["cells"] == 2 and document["answered"] >= 0.99
    assert 0 < document["cpu_look"] < document["cpu"] and document["rss"] > 10
    assert "CPU of a core" in text
    json.dumps(document)


class Deaf:
    """A writer whose bytes never arrive, and the reader of a target that holds nothing."""

    def __init__(self) -> None:
        self.pool = torch.ones(transfer.PAGES * transfer.PAGE, dtype=torch.uint8)

    def write(self, src: list[int], dst: list[int]) -> float:
        return 0.0

    def fetch(self, there: list[int], here: list[int]) -> torch.Tensor:
        return torch.zeros(len(there), transfer.PAGE, dtype=torch.uint8)


def test_a_transfer_whose_bytes_do_not_arrive_is_not_timed():
    with pytest.raises(BenchError, match="the engine wrote other bytes"):
        transfer.prove(Deaf(), Deaf())


def test_ways_change_their_order_and_are_asked_equally_often():
    asked: list[str] = []
    ssh._in_turn(4, lambda: asked.append("ours"), lambda: asked.append("theirs"))
    assert asked == ["theirs", "ours", "ours", "theirs"] * 2
