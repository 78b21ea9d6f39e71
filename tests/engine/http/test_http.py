"""What both HTTP servers share: sockets, bodies, tokens, ids."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Annotated, Any

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.core.errors import ConfigError, Exit
from engine.core.settings import Settings
from engine.http.auth import require_admin, require_drill, token_from
from engine.http.body import MAX_BODY, convert, read_object
from engine.http.errors import HANDLERS, ParamError, json_response
from engine.http.ids import request_id
from engine.http.serve import PortInUse, listen, serve
from engine.http.timeouts import set_timeouts


async def echo(request: Request) -> Response:
    return json_response(await read_object(request))


async def admin(request: Request) -> Response:
    require_admin(request, "sesame")
    require_drill(request, request.query_params.get("drill"))
    return json_response({})


async def off(request: Request) -> Response:
    require_admin(request, None)
    return json_response({})


async def crash(_: Request) -> Response:
    raise KeyError("secret")


def app() -> Starlette:
    handlers = {"/echo": echo, "/admin": admin, "/off": off, "/crash": crash}
    return Starlette(
        routes=[Route(p, h, methods=["POST"]) for p, h in handlers.items()], exception_handlers=HANDLERS
    )


def post(path: str, **kwargs: Any) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.post(path, **kwargs)

    return asyncio.run(go())


@pytest.mark.parametrize(
    "body", [b"{", b"[1]", b"nul", b'{"a": NaN}', b"[" * 100_000, b"\xff\xfe{}", b'{"a":"\\ud800"}']
)
def test_a_body_that_is_no_json_object_is_a_400(body: bytes) -> None:
    answer = post("/echo", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


def test_a_body_past_the_limit_is_a_413() -> None:
    answer = post("/echo", content=b" " * (MAX_BODY + 1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


def test_unknown_paths_methods_and_crashes_have_typed_bodies_without_a_traceback() -> None:
    assert post("/nothing").json()["error"]["code"] == "not_found"
    crashed = post("/crash")
    assert crashed.status_code == 500 and crashed.json()["error"]["code"] == "internal"
    assert "secret" not in crashed.text


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "token_missing"),
        ({"Authorization": "Basic sesame"}, 401, "token_missing"),
        ({"Authorization": "Bearer wrong"}, 401, "token_wrong"),
        ({"Authorization": "Bearer s\xe9same".encode("latin-1")}, 401, "token_wrong"),
        ({"Authorization": "Bearer sesame"}, 403, "drill_disabled"),
    ],
)
def test_admin_needs_the_token(headers: dict[str, str], status: int, code: str) -> None:
    answer = post("/admin", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_drill_needs_its_own_token() -> None:
    bearer = {"Authorization": "Bearer sesame"}
    wrong = post("/admin?drill=d", headers={**bearer, "X-Drill-Token": "x"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (403, "drill_token_wrong")
    assert post("/admin?drill=d", headers={**bearer, "X-Drill-Token": "d"}).status_code == 200


def test_without_a_configured_token_admin_is_off() -> None:
    answer = post("/off", headers={"Authorization": "Bearer sesame"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "admin_disabled")


def test_tokens_come_from_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token"
    assert token_from({}, "PD_FLEET_TOKEN_FILE") is None
    with pytest.raises(ConfigError):
        token_from({"PD_FLEET_TOKEN_FILE": str(file)}, "PD_FLEET_TOKEN_FILE")
    file.write_text("\n")
    with pytest.raises(ConfigError):
        token_from({"PD_FLEET_TOKEN_FILE": str(file)}, "PD_FLEET_TOKEN_FILE")
    file.write_text("abc\n")
    file.chmod(0o600)
    assert token_from({"PD_FLEET_TOKEN_FILE": str(file)}, "PD_FLEET_TOKEN_FILE") == "abc"
    assert caplog.messages == []
    file.chmod(0o644)
    assert token_from({"PD_FLEET_TOKEN_FILE": str(file)}, "PD_FLEET_TOKEN_FILE") == "abc"
    assert caplog.messages == [f"PD_FLEET_TOKEN_FILE: others can read {file} (mode 0644, better 0600)"]


class Inner(msgspec.Struct):
    deep: Annotated[int, msgspec.Meta(ge=1)]


class Outer(msgspec.Struct):
    inner: Inner
    many: list[int] = []


@pytest.mark.parametrize(
    ("document", "param"),
    [
        ({}, "inner"),
        ({"inner": {}}, "inner.deep"),
        ({"inner": {"deep": 0}}, "inner.deep"),
        ({"inner": {"deep": 1}, "many": [1, "x"]}, "many[1]"),
    ],
)
def test_a_wrong_field_is_named(document: dict[str, Any], param: str) -> None:
    with pytest.raises(ParamError) as e:
        convert(document, Outer)
    assert e.value.param == param and param in e.value.message


def request_with(headers: dict[str, str]) -> Request:
    raw = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
    return Request({"type": "http", "headers": raw})


def test_request_ids_are_taken_made_and_kept_apart() -> None:
    assert request_id(request_with({"X-Request-ID": "a"}), set()) == "a"
    assert request_id(request_with({}), set(), "rid") == "rid"
    assert request_id(request_with({}), set()) != request_id(request_with({}), set())
    again = request_id(request_with({"X-Request-ID": "a"}), {"a"})
    assert again.startswith("a.") and again != "a"
    for bad in ("", "a b", "x" * 129, "é"):
        with pytest.raises(ParamError):
            request_id(request_with({"X-Request-ID": bad or " "}), set())


def test_timeouts_change_together_or_not_at_all() -> None:
    settings = Settings.from_env({})
    document = set_timeouts(settings, {"inflight": 60, "PD_ROUTER_IDLE_TIMEOUT": 10}, 5.0)
    assert document["inflight"]["value"] == 60 and document["inflight"]["source"] == "admin"
    assert settings["router_idle"] == 10
    for bad in ({"inflight": 30, "nothing": 1}, {"inflight": 30, "router_idle": True}, {"inflight": -1}):
        with pytest.raises(ConfigError):
            set_timeouts(settings, bad, 6.0)
    assert settings["inflight"] == 60


def test_a_taken_port_is_named_with_its_exit_code() -> None:
    with listen("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(PortInUse) as e:
            listen("127.0.0.1", port)
    assert e.value.exit == Exit.PORT_IN_USE and str(port) in e.value.message


def test_accepted_sockets_send_at_once() -> None:
    """Without TCP_NODELAY the second small write of a stream waits for a delayed ACK."""

    async def go() -> int:
        seen: list[int] = []

        async def peek(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await receive()
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await send({"type": "lifespan.shutdown.complete"})
                return
            transport = send.__self__.transport
            seen.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            await Response("ok")(scope, receive, send)

        stop = asyncio.Event()
        with listen("127.0.0.1", 0) as sock:
            up = asyncio.Event()
            serving = asyncio.create_task(serve(peek, "", 0, stop=stop, sock=sock, grace=1, started=up.set))
            await asyncio.wait_for(up.wait(), 5)
            async with httpx.AsyncClient(trust_env=False) as client:
                await client.get(f"http://127.0.0.1:{sock.getsockname()[1]}/")
            stop.set()
            await asyncio.wait_for(serving, 10)
        return seen[0]

    assert asyncio.run(go()) != 0
