"""What each role needs of a router, and how each answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.api.scripted import Output, Scripted, call, spell

WHERE = {"bootstrap_host": "p", "bootstrap_port": 8102, "bootstrap_room": 2**63 - 1}


def ask(client: Scripted, **fields: Any) -> Any:
    return call(client, "/v1/completions", {"prompt": "a", **fields})


def test_a_prefill_answers_one_document_after_the_handover() -> None:
    client = Scripted(spell("x", "handed_over"), role="prefill")
    answer = ask(client, stream=True, **WHERE)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["choices"][0]["finish_reason"] == "handed_over"
    assert answer.json()["usage"]["completion_tokens"] == 1
    assert (client.submitted[0].room, client.submitted[0].peer) == (2**63 - 1, None)


def test_a_prefill_that_could_not_hand_over_answers_an_error_status() -> None:
    client = Scripted([Output(code="kv_transfer_timeout", message="m")], role="prefill")
    assert ask(client, stream=True, **WHERE).status_code == 504


@pytest.mark.parametrize("where", [WHERE, {k: [v] for k, v in WHERE.items()}])
def test_a_decode_is_told_where_its_kv_is(where: dict[str, Any]) -> None:
    client = Scripted(spell("x"), role="decode")
    assert ask(client, **where).status_code == 200
    assert (client.submitted[0].room, client.submitted[0].peer) == (2**63 - 1, "p:8102")


def test_a_null_port_means_the_engines_own() -> None:
    client = Scripted(spell("x"), role="decode")
    ask(client, **{**WHERE, "bootstrap_port": None})
    assert client.submitted[0].peer == "p:7777"


@pytest.mark.parametrize(
    ("role", "missing"),
    [("prefill", "bootstrap_room"), ("decode", "bootstrap_room"), ("decode", "bootstrap_host")],
)
def test_a_leg_without_its_fields_is_refused(role: str, missing: str) -> None:
    answer = ask(Scripted(spell("x"), role=role), **{**WHERE, missing: None})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, missing)


def test_a_decode_without_any_port_is_refused() -> None:
    client = Scripted(spell("x"), role="decode")
    client.document["bootstrap"] = None
    answer = ask(client, **{**WHERE, "bootstrap_port": None})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "bootstrap_port")


def test_batches_of_rooms_are_refused() -> None:
    answer = ask(Scripted(spell("x"), role="prefill"), bootstrap_room=[1, 2])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_supported")


def test_a_whole_engine_needs_no_fields_and_takes_none() -> None:
    client = Scripted(spell("x"))
    assert ask(client).status_code == 200 and client.submitted[0].room is None
    assert ask(client, **WHERE).status_code == 400
