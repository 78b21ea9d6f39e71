"""Bodies made to break or to bloat: each gets a typed answer, none a 500, and memory stays where it was."""

from __future__ import annotations

import json
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core.errors import RequestError
from engine.http.body import MAX_BODY
from engine.text.template import ChatTemplate
from tests.engine.api.scripted import DRILL, TOKEN, Scripted, call, spell
from tests.examples import examples

ROUTES = ("/v1/completions", "/v1/chat/completions", "/generate")
TOKENS = ("", "Bearer ", "Bearer wrong", "Basic x", f"Bearer {TOKEN}")
VERBS = ("abort", "drain", "resume", "timeouts", "faults")
NAMES = """prompt messages text input_ids sampling_params max_tokens n stop stream tools stream_options
temperature bootstrap_room bootstrap_host rid model seed logprobs role content id room name armed count value
timeout inflight x"""
KEYS = st.sampled_from(NAMES.split())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.sampled_from(["tiny", "user", "prefill", 0, 1, -1, 1 << 63, 1e308])
)
VALUES = st.recursive(
    LEAVES, lambda c: st.lists(c, max_size=4) | st.dictionaries(KEYS, c, max_size=4), max_leaves=12
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=6)
FUZZ = settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))


def typed(answer: Any) -> bool:
    """Whether it is a success or a client's error with a code and a sentence."""
    if answer.status_code == 200:
        return True
    error = answer.json()["error"]
    return 400 <= answer.status_code < 500 and bool(error["code"]) and len(error["message"]) < 2000


@pytest.mark.parametrize("route", ROUTES)
@FUZZ
@given(document=DOCUMENTS)
def test_any_document_is_served_or_refused_with_a_code(route: str, document: dict[str, Any]) -> None:
    client = Scripted(spell("x"))
    answer = call(client, route, content=json.dumps(document).encode("utf-8", "surrogatepass"))
    assert typed(answer), (answer.status_code, answer.text[:300])


@pytest.mark.parametrize("route", [*ROUTES, "/admin/abort"])
@FUZZ
@given(raw=st.binary(max_size=200) | st.text(alphabet='{}[]",:0123456789eE+-.truefalsnl\\u ', max_size=80))
def test_any_bytes_are_served_or_refused_with_a_code(route: str, raw: bytes | str) -> None:
    data = raw if isinstance(raw, bytes) else raw.encode()
    answer = call(Scripted(spell("x")), route, content=data, headers={"Authorization": f"Bearer {TOKEN}"})
    assert typed(answer), (answer.status_code, answer.text[:300])


@pytest.mark.parametrize("verb", VERBS)
@FUZZ
@given(document=DOCUMENTS, token=st.sampled_from(TOKENS))
def test_admin_verbs_take_nothing_without_the_token(verb: str, document: dict[str, Any], token: str) -> None:
    client = Scripted()
    headers = {"Authorization": token, "X-Drill-Token": DRILL}
    answer = call(client, f"/admin/{verb}", content=json.dumps(document).encode(), headers=headers)
    assert typed(answer), (answer.status_code, answer.text[:300])
    if token != f"Bearer {TOKEN}":
        assert answer.status_code == 401 and not client.verbs and not client.aborted


def bombs() -> dict[str, tuple[str, bytes]]:
    """Name to route and body; each near the limit of a body, or far past another one."""
    half = MAX_BODY // 2
    many = b",".join([b"7"] * 1_000_000)
    return {
        "a million tokens": ("/v1/completions", b'{"prompt": [' + many + b"]}"),
        "a long text": ("/v1/completions", b'{"prompt": "' + b"word " * (half // 5) + b'"}'),
        "one long word": ("/generate", b'{"text": "' + b"a" * half + b'"}'),
        "deep arrays": ("/v1/completions", b'{"prompt": ' + b"[" * half),
        "deep objects": ("/generate", b'{"a":' * 200_000),
        "many messages": (
            "/v1/chat/completions",
            b'{"messages": [' + b",".join([b'{"role":"user","content":"a"}'] * 100_000) + b"]}",
        ),
        "many stops": (
            "/v1/completions",
            b'{"prompt": "a", "stop": [' + b",".join([b'"s"'] * 500_000) + b"]}",
        ),
        "a huge n": ("/v1/completions", b'{"prompt": "a", "n": ' + b"9" * 4000 + b"}"),
        "a huge max_tokens": ("/v1/completions", b'{"prompt": "a", "max_tokens": 99999999999999}'),
        "empty lists": ("/generate", b'{"text": [' + b",".join([b"[]"] * 1_000_000) + b"]}"),
        "too large": ("/generate", b'{"text": "' + b"a" * MAX_BODY + b'"}'),
    }


@pytest.mark.parametrize("name", bombs())
def test_a_bomb_is_refused_and_leaves_no_memory_behind(name: str) -> None:
    route, body = bombs()[name]
    client = Scripted(spell("x"))
    assert typed(call(client, route, content=body))
    before = psutil.Process().memory_info().rss
    for _ in range(3):
        answer = call(client, route, content=body)
        assert typed(answer) and answer.status_code != 200, answer.text[:300]
    assert psutil.Process().memory_info().rss - before < 64 << 20
    assert client.submitted == []


def test_a_template_that_writes_out_deep_tools_refuses_them() -> None:
    tools: Any = 1
    for _ in range(900):
        tools = {"a": tools}
    template = ChatTemplate("{{ tools | tojson }}", {})
    for indent in range(3):
        try:
            template.render([{"role": "user", "content": "x" * indent}], [tools])
        except RequestError as error:
            assert error.code == "invalid_request"
