"""State, readiness, the public routers' probes, metrics and admin verbs."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.engine.api.scripted import DRILL, TOKEN, Scripted, call

BEARER = {"Authorization": f"Bearer {TOKEN}"}


def get(client: Scripted, path: str, **kwargs: Any) -> Any:
    return call(client, path, method="GET", **kwargs)


def test_readiness_is_the_states() -> None:
    client = Scripted()
    assert get(client, "/ready").json() == {"ready": True, "reasons": []}
    client.document |= {"ready": False, "not_ready": ["draining"]}
    answer = get(client, "/ready")
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "reasons": ["draining"]})
    assert get(client, "/health").status_code == 200
    assert get(client, "/v1/state").json() == client.document


def test_probes_have_the_types_the_public_router_parses() -> None:
    client = Scripted(role="prefill")
    for path in ("/server_info", "/get_server_info"):
        info = get(client, path).json()
        assert (info["tp_size"], info["dp_size"], info["disaggregation_mode"]) == (2, 1, "prefill")
        assert info["served_model_name"] == "tiny" and info["internal_states"] == []
    for path in ("/model_info", "/get_model_info"):
        assert get(client, path).json()["is_generation"] is True
    assert get(client, "/get_load").json() == [
        {"dp_rank": 0, "num_reqs": 1, "num_waiting_reqs": 0, "num_tokens": 7}
    ]
    (model,) = get(client, "/v1/models").json()["data"]
    assert model["id"] == "tiny" and get(client, "/v1/models/tiny").json() == model
    other = get(client, "/v1/models/meta/other")
    assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")
    loads = get(client, "/v1/loads?include=all").json()
    assert loads["aggregate"] == {"total_tokens": 7, "total_reqs": 1}
    assert loads["loads"][0]["disaggregation"]["prefill_inflight_queue_reqs"] == 1
    assert get(client, "/health_generate").status_code == 200
    client.document["snapshot_age_s"] = 60.0
    assert get(client, "/health_generate").status_code == 503


def test_sglang_s_verbs_say_whether_something_is_held_and_end_it() -> None:
    client = Scripted()
    assert call(client, "/flush_cache", {}).status_code == 400
    for body, wanted in (({"rid": "known"}, 1), ({"rid": "nobody"}, 0), ({"rid": ""}, 0)):
        answer = call(client, "/abort_request", body, headers=BEARER)
        assert answer.json() == {"aborted": wanted}
    assert call(client, "/abort_request", {"abort_all": True}).status_code == 401
    client.document["requests"] = []
    client.document["pages"] = {
        **client.document["pages"],
        "held": 0,
        "free": client.document["pages"]["total"],
    }
    assert not client.verbs and call(client, "/flush_cache", {}).status_code == 200
    assert client.verbs == [("flush", {})]


def samples(families: Any) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def test_metrics_are_the_state_in_both_expositions() -> None:
    client = Scripted()
    text = samples(parse_text(get(client, "/metrics").text))
    assert text["pd_oldest_inflight_age_seconds", ()] == 61.5
    assert text["pd_queue_depth", (("queue", "inflight"),)] == 1
    assert text["pd_requests_failed_total", (("code", "kv_transfer_timeout"),)] == 2
    assert text["pd_pages", (("state", "quarantined"),)] == 1 and text["pd_pages_cached", ()] == 3
    assert text["pd_prefix_tokens_total", (("result", "hit"),)] == 70
    assert text["pd_prefix_tokens_total", (("result", "miss"),)] == 30
    assert text["pd_inflight_dwell_seconds_bucket", (("le", "0.1"),)] == 4
    assert text["pd_inflight_dwell_seconds_bucket", (("le", "+Inf"),)] == 6
    assert text["pd_inflight_dwell_seconds_count", ()] == 6
    assert text["pd_peers_linked", ()] == 1
    client.document["counters"]["requests_done"] = 6
    assert samples(parse_text(get(client, "/metrics").text))["pd_requests_done_total", ()] == 6
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    families = list(parse_openmetrics(get(client, "/metrics", headers=accept).text))
    labels = next(f for f in families if f.name == "pd_engine").samples[0].labels
    assert (labels["instance"], labels["role"]) == ("engine-0", "both")


def test_metrics_of_an_engine_that_has_published_nothing_yet() -> None:
    client = Scripted()
    client.document |= {
        "queues": {},
        "counters": {},
        "versions": {},
        "fingerprint": {},
        "snapshot_age_s": None,
    }
    client.document["dwell"] = {"le": [], "counts": [], "total": 0, "sum": 0.0, "recent": []}
    assert get(client, "/metrics").status_code == 200
    assert get(client, "/server_info").json()["tp_size"] == 1
    assert get(client, "/get_load").status_code == 200


@pytest.mark.parametrize("path", ["abort", "drain", "resume", "relink", "timeouts", "faults"])
def test_every_admin_verb_needs_the_token(path: str) -> None:
    client = Scripted()
    assert call(client, f"/admin/{path}", {}).status_code == 401
    assert client.verbs == [] and client.aborted == []


def test_admin_verbs_reach_the_group() -> None:
    client = Scripted()

    def tell(verb: str, body: Any) -> Any:
        return call(client, f"/admin/{verb}", body, headers={**BEARER, "X-Drill-Token": DRILL}).json()

    assert tell("abort", {"id": "known"}) == {"aborted": True}
    assert tell("abort", {"id": "unknown"}) == {"aborted": False}
    assert tell("abort", {"room": 7}) == {"aborted": True}
    assert client.aborted == [("known", "admin"), ("unknown", "admin"), ("7", "admin")]
    tell("drain", {})
    tell("drain", {"timeout": 2})
    tell("resume", {})
    tell("relink", {"peer": "decode-0"})
    tell("timeouts", {"inflight": 60})
    assert tell("faults", {"name": "lose-done", "armed": True}) == {"verb": "faults"}
    assert client.verbs == [
        ("drain", {}),
        ("drain", {"timeout": 2.0}),
        ("resume", {}),
        ("relink", {"peer": "decode-0"}),
        ("timeouts", {"inflight": 60}),
        ("faults", {"name": "lose-done", "armed": True, "count": 0, "value": 0.0}),
    ]


@pytest.mark.parametrize(
    ("verb", "body", "param"),
    [
        ("abort", {}, "id"),
        ("abort", {"id": "a", "room": 1}, "id"),
        ("drain", {"timeout": -1}, "timeout"),
        ("relink", {}, "peer"),
        ("relink", {"peer": ""}, "peer"),
        ("faults", {"name": "x"}, "armed"),
        ("drain", {"timeuot": 3}, "timeuot"),
        ("abort", {"id": "a", "rom": 1}, "rom"),
        ("faults", {"name": "x", "armed": True, "cuont": 1}, "cuont"),
        ("resume", {"timeout": 1}, "timeout"),
    ],
)
def test_wrong_admin_arguments_are_named_and_nothing_is_done(verb: str, body: Any, param: str) -> None:
    headers = {**BEARER, "X-Drill-Token": DRILL}
    client = Scripted()
    answer = call(client, f"/admin/{verb}", body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert client.verbs == [] and client.aborted == []


def test_a_misspelt_argument_is_told_the_nearest_one() -> None:
    said = call(Scripted(), "/admin/drain", {"timeuot": 3}, headers=BEARER).json()["error"]["message"]
    assert said == "timeuot is not an argument of this verb. Did you mean timeout?"


def test_faults_need_the_drill_token_too() -> None:
    client = Scripted()
    answer = call(client, "/admin/faults", {"name": "x", "armed": True}, headers=BEARER)
    assert (answer.status_code, client.verbs) == (403, [])
