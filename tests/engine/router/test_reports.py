"""What the router shows, who may command it, and its command line as a real process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from engine.core.errors import ConfigError
from engine.router.config import parse_args
from tests.engine.router.stubs import BEARER, rig, until

GOOD = ["--instance", "r", "--port", "1", "--prefill", "p0=http://h:1,h:2,a", "--decode", "d0=http://h:3,a"]


def test_state_and_requests_have_the_shape_of_the_contract() -> None:
    async def test() -> None:
        async with rig() as r:
            await r.post(id="one")
            await r.ended()
            state = (await r.http.get("/v1/state")).json()
            assert (state["schema"], state["role"], state["admission"], state["held"]) == (
                1,
                "router",
                "open",
                0,
            )
            assert (state["hold_age_s"], state["hold_limit_s"]) == (None, 180.0)
            assert len(state["incarnation"]) == 16
            prefill = state["engines"][0]
            assert 0 <= prefill.pop("last_ok_age_s") < 10
            assert prefill == {
                "instance": "p0",
                "role": "prefill",
                "cell": "a",
                "url": r["p0"].url,
                "bootstrap": "h:9",
                "ready": True,
                "cordoned": False,
                "error": None,
                "incarnation": r["p0"].incarnation,
                "active": 0,
            }
            assert state["counters"]["requests_total"] == state["counters"]["requests_done"] == 1
            recent = (await r.http.get("/v1/requests")).json()["recent"]
            assert [(e["id"], e["ended"], e["code"]) for e in recent] == [("one", "done", None)]
            (model,) = (await r.http.get("/v1/models")).json()["data"]
            assert model["id"] == "tiny" and (await r.http.get("/v1/models/tiny")).json() == model
            other = await r.http.get("/v1/models/meta/other")
            assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")
            accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
            families = list(parse_openmetrics((await r.http.get("/metrics", headers=accept)).text))
            assert next(f for f in families if f.name == "pd_router_requests").samples[0].value == 1

    asyncio.run(test())


@pytest.mark.parametrize("verb", ["hold", "drain", "resume", "abort", "cordon", "timeouts"])
def test_every_admin_verb_needs_the_token(verb: str) -> None:
    async def test() -> None:
        async with rig(wait_ready=False) as r:
            assert (await r.http.post(f"/admin/{verb}", json={})).status_code == 401
            wrong = {"Authorization": "Bearer wrong"}
            assert (await r.http.post(f"/admin/{verb}", json={}, headers=wrong)).status_code == 401
            assert r.router.admission.held_since is None
            if verb in ("abort", "cordon"):
                assert (await r.http.post(f"/admin/{verb}", json={}, headers=BEARER)).status_code == 400

    asyncio.run(test())


@pytest.mark.parametrize(
    ("verb", "body", "hint"),
    [
        ("hold", {"timeuot": 3}, "Did you mean timeout?"),
        ("drain", {"timeuot": 3}, "Did you mean timeout?"),
        ("abort", {"id": "a", "room": 1}, "Known: id."),
        ("cordon", {"engine": "p0", "cordoned": True, "cordned": False}, "Did you mean cordoned?"),
        ("resume", {"force": True}, "This verb takes none."),
    ],
)
def test_a_misspelt_admin_argument_is_refused_and_nothing_is_done(
    verb: str, body: dict[str, Any], hint: str
) -> None:
    async def test() -> None:
        async with rig() as r:
            answer = await r.http.post(f"/admin/{verb}", json=body, headers=BEARER)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, list(body)[-1])
            assert error["message"].endswith(hint)
            assert r.router.admission.held_since is None and not r.engine("p0").cordoned

    asyncio.run(test())


def test_health_sees_restarts_strangers_and_nonsense() -> None:
    async def test() -> None:
        async with rig() as r:
            first = r.engine("p0").incarnation
            await r["p0"].end()
            await until(lambda: not r.engine("p0").ready)
            assert "cannot be reached" in str(r.engine("p0").error)
            await r["p0"].start()
            await until(lambda: r.engine("p0").ready)
            assert r.engine("p0").incarnation != first
            r["p0"].name = "p9"
            await until(lambda: not r.engine("p0").ready)
            assert "is p9" in str(r.engine("p0").error)
            r["p0"].silent = True
            await until(lambda: "not an engine" in str(r.engine("p0").error))
            r["d0"].ready = False
            await until(lambda: r.engine("d0").error == "told so")

    asyncio.run(test())


@pytest.mark.parametrize(
    "change",
    [
        {"p0=http://h:1,h:2,a": "p0=http://h:1,a"},
        {"p0=http://h:1,h:2,a": "p0=http://h,h:2,a"},
        {"p0=http://h:1,h:2,a": "p0=ftp://h:1,h:2,a"},
        {"p0=http://h:1,h:2,a": "p0=http://h:1,h:x,a"},
        {"p0=http://h:1,h:2,a": "p0=http://h:99999,h:2,a"},
        {"p0=http://h:1,h:2,a": "p0=http://[::1,h:2,a"},
        {GOOD[GOOD.index("--port") + 1]: "65536"},
        {"d0=http://h:3,a": "p0=http://h:3,a"},
        {"d0=http://h:3,a": "=http://h:3,a"},
        {"d0=http://h:3,a": "d0=http://h:3,"},
    ],
)
def test_a_wrong_engine_argument_is_a_config_error(change: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        parse_args([change.get(a, a) for a in GOOD])
    assert [e.instance for e in parse_args(GOOD).engines] == ["p0", "d0"]


def test_a_router_needs_both_sides() -> None:
    with pytest.raises(ConfigError):
        parse_args(GOOD[:6])


def test_the_process_serves_refuses_and_stops(tmp_path: Path) -> None:
    """As an operator runs it: a token file, a held request, SIGTERM answers it and exits 0."""
    (tmp_path / "token").write_text("fleet")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PD_")}
    env["PD_FLEET_TOKEN_FILE"] = str(tmp_path / "token")
    argv = [sys.executable, "-m", "engine", "router", *GOOD]
    argv[argv.index("--port") + 1] = "0"
    with (tmp_path / "log").open("w") as out:
        process = subprocess.Popen(argv, env=env, stdout=out, stderr=out)
    try:
        asyncio.run(_operate(process, tmp_path / "log"))
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait(10)
    assert "Traceback" not in (tmp_path / "log").read_text()


async def _operate(process: subprocess.Popen[bytes], log: Path) -> None:
    url = ""
    deadline = time.monotonic() + 20
    while not url and time.monotonic() < deadline:
        found = [line for line in log.read_text().splitlines() if "serving on" in line]
        url = "http://" + found[0].split("serving on ")[1].split()[0] if found else ""
        await asyncio.sleep(0.05)
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=15) as http:
        held = await http.post("/admin/hold", json={}, headers=BEARER)
        assert held.json()["admission"] == "held"
        asking = asyncio.create_task(http.post("/v1/completions", json={"prompt": "p"}))
        while (await http.get("/v1/state")).json()["held"] == 0:
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        answer = await asking
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
