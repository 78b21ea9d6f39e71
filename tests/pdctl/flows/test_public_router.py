"""The public router, a real process, in front of bundled engines: served, seen, and diagnosed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pdctl.adapters.picture import Router
from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.deploy.planning import plan_deploy
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.diagnose import diagnose_kept
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, free_ports, init_fleet
from pdctl.flows.status import collect_status
from pdctl.remote.journal import Journal
from tests.pdctl.flows import public_router
from tests.pdctl.flows.same_verdict import same_from_a_bundle

pytestmark = pytest.mark.slow
FRANCE = "The capital of France is"


@pytest.fixture(scope="module")
def fleet(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    path = tmp_path_factory.mktemp("public") / "fleet.toml"
    init_fleet(path, Wanted("public", str(smollm)))
    made = load_fleet(path)
    prefill, decode = made.engine("prefill-0"), made.engine("decode-0")
    metrics = free_ports(path.parent, 8)[-1]  # the first of them are the fleet's own
    words = public_router.command(
        prefill.url, prefill.bootstrap_port or 0, decode.url, made.router.port, metrics
    )
    text = path.read_text().replace(
        "[router]\n", f'[router]\nkind = "sglang-router"\ncommand = {json.dumps(words)}\n'
    )
    path.write_text(text)
    with Context(load_fleet(path)) as ctx:
        try:
            with Journal(ctx.fleet.paths.journal, "deploy") as journal:
                apply_deploy(plan_deploy(ctx, 240.0), journal)
            yield ctx
        finally:
            down(ctx)


def until(check: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.2)


def post(ctx: Context, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{ctx.fleet.router.url}{path}", json=body, timeout=60.0, trust_env=False)


def test_requests_are_answered_through_it(fleet: Context) -> None:
    model = fleet.fleet.model.name
    said = post(
        fleet, "/v1/completions", {"model": model, "prompt": FRANCE, "max_tokens": 4, "temperature": 0}
    )
    assert said.status_code == 200 and "Paris" in said.json()["choices"][0]["text"]
    chat = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "stream": True}
    events = post(fleet, "/v1/chat/completions", chat).text.split("\n\n")
    assert events[-2] == "data: [DONE]" and len(events) > 3
    sampling = {"max_new_tokens": 4, "temperature": 0}
    native = post(fleet, "/generate", {"text": FRANCE, "sampling_params": sampling})
    assert native.status_code == 200 and "Paris" in native.json()["text"]
    # What an engine holds is published a moment after it has changed.
    until(lambda: post(fleet, "/flush_cache", {}).json()["workers_flushed"] == 2)


def test_status_and_diagnose_show_its_workers_and_counts(fleet: Context) -> None:
    status = collect_status(fleet)
    assert status.healthy
    front = status.router_sample.picture
    assert isinstance(front, Router)
    urls = {e.url: e.role for e in fleet.fleet.engines()}
    assert {e.url: e.role for e in front.engines} == urls and all(e.ready for e in front.engines)
    assert front.timeouts["router_total"].value == 60.0
    report, documents = diagnose_kept(fleet)
    assert report.verdict.status == "healthy", report.verdict.summary
    assert {
        "router/workers.1.json",
        "router/metrics.2.prom",
        "router/readiness.2.json",
    } <= documents.texts.keys()
    same_from_a_bundle(report, documents, fleet.fleet.dir)


def test_a_decode_that_is_gone_leads_and_the_router_is_seen_to_lose_it(fleet: Context) -> None:
    decode = fleet.fleet.engine("decode-0")
    fleet.units("local").stop("decode-0")
    try:

        def lost() -> bool:
            front = collect_status(fleet).router_sample.picture
            return isinstance(front, Router) and any(
                not e.ready and e.url == decode.url for e in front.engines
            )

        until(lost)
        report, documents = diagnose_kept(fleet)
        first = report.verdict.findings[0].finding
        assert (first.code, first.subject) == ("PD201", "decode-0"), report.verdict.summary
        same_from_a_bundle(report, documents, fleet.fleet.dir)
    finally:
        fleet.units("local").start("decode-0")
        until(lambda: collect_status(fleet).healthy)
