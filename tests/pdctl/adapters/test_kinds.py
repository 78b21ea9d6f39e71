"""Raw answers of other kinds become the one picture, and what they do not say is Missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.adapters import kinds
from pdctl.adapters.endpoints import Server
from pdctl.adapters.launch.read import from_command
from pdctl.adapters.picture import Engine, Pages, Reach, Router
from pdctl.adapters.probe import Answer, read
from pdctl.adapters.timers import timers
from pdctl.facts.missing import Missing

RECORDED = Path(__file__).with_name("recorded")
AT = 1787220001.0


def answers(folder: str, **instead: Answer) -> dict[str, Answer]:
    """Every recorded answer of a server; `instead` puts another in the place of one."""
    found = {
        path.stem: read(path.read_text(), path.suffix != ".json", 0.01)
        for path in sorted((RECORDED / folder).iterdir())
    }
    return found | instead


def sglang(role: str) -> Server:
    return Server(role, "sglang", role, "http://10.0.0.1:30000", "10.0.0.1:8998")


def picture(server: Server, said: dict[str, Answer], **more: dict[str, str]) -> Engine:
    found = kinds.sample(server, said, AT, **more)
    assert found.reach is Reach.OK and isinstance(found.picture, Engine)
    return found.picture


def refused() -> Answer:
    return Answer(Reach.REFUSED, None, "nothing listens on the port", 0.0)


def test_sglang_shows_its_queues_its_kv_and_its_version() -> None:
    prefill = picture(sglang("prefill"), answers("sglang-prefill"))
    depths = {name: queue.depth for name, queue in prefill.queues.items()}
    # /v1/loads says 7 in the inflight queue, the gauge of /metrics is older and says 5.
    assert depths == {"bootstrap": 3, "waiting": 2, "inflight": 7, "running": 1}
    assert prefill.pages == Pages(3072, 2752, 320, 0, 64)
    assert prefill.ready and prefill.versions == {"sglang": "0.5.17"}
    decode = picture(sglang("decode"), answers("sglang-decode"))
    assert {n: q.depth for n, q in decode.queues.items()} == {
        "waiting": 0,
        "prealloc": 1,
        "transfer": 4,
        "retracted": 0,
        "running": 12,
    }
    for unknown in (decode.incarnation, decode.progress, decode.legs, decode.peers, decode.snapshot_age):
        assert isinstance(unknown, Missing) and "sglang" in unknown.reason


def test_an_sglang_whose_scheduler_does_not_answer_is_not_ready() -> None:
    silent = Answer(Reach.TIMED_OUT, None, "the port is open and nothing answered", 2.0)
    found = picture(sglang("prefill"), answers("sglang-prefill", server_info=silent))
    assert not found.ready and "scheduler" in found.not_ready[0]
    # What it published before is still there, and is all that can be said.
    assert found.queues["inflight"].depth == 7


def test_a_bootstrap_server_without_all_ranks_says_so() -> None:
    why = "HTTP 503: Prefill server not fully registered yet (1 workers registered)"
    route = Answer(Reach.BAD_ANSWER, None, why, 0.01)
    found = picture(sglang("prefill"), answers("sglang-prefill", route=route))
    assert not found.ready and "1 workers registered" in found.not_ready[0]


def test_a_missing_key_or_another_version_is_no_fault_of_the_engine() -> None:
    for detail in ("HTTP 401", "HTTP 404"):
        denied = Answer(Reach.BAD_ANSWER, None, detail, 0.01)
        assert picture(sglang("decode"), answers("sglang-decode", server_info=denied)).ready


@pytest.mark.parametrize("kind", ["sglang", "vllm", "sglang-router"])
def test_a_server_that_is_gone_has_no_picture(kind: str) -> None:
    role = "router" if kind == "sglang-router" else "decode"
    server = Server("x", kind, role, "http://10.0.0.1:30000")
    gone = {e.document: refused() for e in kinds.endpoints(server)}
    found = kinds.sample(server, gone, AT)
    assert found.reach is Reach.REFUSED and isinstance(found.picture, Missing)


def test_vllm_shows_its_queues_and_its_kv() -> None:
    server = Server("decode", "vllm", "decode", "http://10.0.0.2:8000")
    found = picture(server, answers("vllm-decode"))
    assert found.ready and found.versions["vllm"].startswith("0.")
    assert set(found.queues) == {"waiting", "waiting for KV", "running"}
    assert isinstance(found.started_at, float)
    assert found.pages == Pages(364, 364, 0, 0, 128)
    sick = Answer(Reach.BAD_ANSWER, None, "HTTP 503", 0.01)
    assert picture(server, answers("vllm-decode", health=sick)).not_ready == ("/health: HTTP 503",)


def test_the_router_shows_its_workers_and_what_it_counts_on_them() -> None:
    server = Server("router", "sglang-router", "router", "http://10.0.0.3:30000")
    said = answers("sglang-router")
    busy = said["metrics"].text.replace(
        'smg_worker_requests_active{worker="http://10.0.0.2:30000"} 0',
        'smg_worker_requests_active{worker="http://10.0.0.2:30000"} 23',
    )
    found = kinds.sample(server, said | {"metrics": read(busy, True, 0.01)}, AT)
    assert isinstance(found.picture, Router)
    workers = {e.url: (e.role, e.ready, e.active) for e in found.picture.engines}
    assert workers == {
        "http://10.0.0.1:30000": ("prefill", True, 0),
        "http://10.0.0.2:30000": ("decode", True, 23),
    }
    assert isinstance(found.picture.requests, Missing)
    unready = Answer(Reach.BAD_ANSWER, None, "HTTP 503", 0.01)
    sick = kinds.sample(server, said | {"readiness": unready}, AT)
    assert sick.reach is Reach.BAD_ANSWER and "/readiness: HTTP 503" in sick.detail
    assert isinstance(sick.picture, Router)


def test_a_probe_that_generates_a_token_is_marked_and_the_router_s_metrics_have_their_port() -> None:
    asked = {e.document: e for e in kinds.endpoints(sglang("decode"))}
    assert [name for name, e in asked.items() if e.generates] == ["health"]
    router = Server("router", "sglang-router", "router", "http://10.0.0.3:30000", metrics_port=29999)
    urls = {e.document: e.url for e in kinds.endpoints(router)}
    assert urls["metrics"] == "http://10.0.0.3:29999/metrics"


def test_timers_come_from_variables_and_flags_and_say_which() -> None:
    values = timers("sglang", "decode", {}, {"SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "60"})
    assert (values["waiting"].value, values["waiting"].source) == (60.0, "env")
    assert values["watchdog"].value == 300.0 and "transfer" not in values and "bootstrap" not in values
    extra = '{"kv_connector":"NixlConnector","kv_connector_extra_config":{"kv_lease_duration":45}}'
    flags = from_command(["vllm", "serve", "m", "--kv-transfer-config", extra])
    values = timers("vllm", "prefill", flags, {})
    assert (values["kv_lease"].value, values["kv_lease"].source) == (45.0, "flag")
    mooncake = from_command(["--kv-transfer-config", '{"kv_connector":"MooncakeConnector"}'])
    assert timers("vllm", "prefill", mooncake, {})["kv_hold"].value == 480.0
    assert "kv_lease" not in timers("vllm", "prefill", mooncake, {})
    assert timers("sglang-router", "router", {}, {})["router_total"].value == 1800.0
