"""A real vLLM prefill/decode pair over NIXL: adopted, deployed, looked at, broken, restarted together."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from pdctl.__main__ import main
from pdctl.diagnose.report import Report
from pdctl.diagnose.rule import Severity
from pdctl.exits import Exit
from pdctl.facts.missing import known
from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.diagnose import diagnose_kept
from pdctl.flows.status import collect_status
from tests.bench import vllm_pair
from tests.bench.procs import BenchError, free_ports
from tests.bench.vllm_proxy import ASK_PREFILL
from tests.pdctl.flows.same_verdict import same_from_a_bundle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
WAIT = "900"
PROXY = Path(vllm_pair.__file__).with_name("vllm_proxy.py")


@dataclass
class Pair:
    folder: Path
    ports: tuple[int, int, int]

    def pdctl(self, *argv: str) -> int:
        return main(["--fleet", str(self.folder / "fleet"), *argv])

    def context(self) -> Context:
        return Context(load_fleet(self.folder / "fleet"))

    def diagnosed(self) -> Report:
        """The verdict, which the saved bundle gives again."""
        with self.context() as ctx:
            report, documents = diagnose_kept(ctx)
            same_from_a_bundle(report, documents, ctx.fleet.dir)
            return report

    def until_leads(self, subject: str, *codes: str, seconds: float = 30.0) -> Report:
        end = time.monotonic() + seconds
        while True:
            report = self.diagnosed()
            found = [p.finding for p in report.verdict.findings if p.finding.severity > Severity.INFO]
            if found and found[0].code in codes and found[0].subject == subject:
                return report
            assert time.monotonic() < end, f"{report.verdict.summary}: {[f.code for f in found]}"

    def ask(self, port: int, **more: Any) -> dict[str, Any]:
        body = {
            "model": "bench",
            "prompt": "The capital of France is " * 40,
            "max_tokens": 4,
            "temperature": 0,
        }
        answer = httpx.post(
            f"http://127.0.0.1:{port}/v1/completions", json=body | more, timeout=120.0, trust_env=False
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def text(self) -> str:
        """The answer through both engines."""
        return str(self.ask(self.ports[2], prompt="The capital of France is")["choices"][0]["text"])

    def inside(self, unit: str) -> list[int]:
        """Pids of the engine core and workers below a unit's HTTP server."""
        with self.context() as ctx:
            report, _ = diagnose_kept(ctx)
        process = next(e.member.process for e in report.facts.engines if e.name == unit)
        assert known(process)
        return [child.pid for child in process.children]


def until(check: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(1.0)


@pytest.fixture(scope="module")
def pair(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("vllm")
    try:
        python = vllm_pair.ensure(folder)
    except BenchError as error:
        pytest.skip(str(error))
    prefill, decode, proxy, *sides = free_ports(5)
    for core, (role, port) in enumerate((("prefill", prefill), ("decode", decode))):
        argv = [*vllm_pair.server(python, smollm, role, port, "bfloat16", 2048), "--enforce-eager"]
        values = vllm_pair.environment(sides[core], core)
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())
        (folder / f"{role}.sh").write_text(f"#!/bin/bash\n{exports}exec {shlex.join(argv)}\n")
    made = Pair(folder, (prefill, decode, proxy))
    scripts = [str(folder / f"{role}.sh") for role in ("prefill", "decode")]
    made.pdctl("adopt", *scripts, "--out", str(folder / "fleet"), "--name", "real")
    legs = ["--prefill", f"http://127.0.0.1:{prefill}", "--decode", f"http://127.0.0.1:{decode}"]
    front = subprocess.Popen([sys.executable, str(PROXY), "--port", str(proxy), *legs])
    try:
        assert made.pdctl("deploy", "--yes", "--wait", WAIT) == Exit.OK
        yield made
    finally:
        front.kill()
        front.wait()
        made.pdctl("down", "--yes")


def test_a_healthy_pair_moves_kv_shows_what_it_has_and_gives_no_alarm(pair: Pair) -> None:
    assert "Paris" in pair.text()
    with pair.context() as ctx:
        status = collect_status(ctx)
    assert status.healthy
    for engine in status.engines:
        assert known(engine.sample.picture) and engine.sample.picture.versions == {"vllm": "0.32.0"}
        assert set(engine.sample.picture.queues) >= {"waiting", "running"}
        assert known(engine.sample.picture.pages) and engine.sample.picture.pages.total > 0
    report = pair.diagnosed()
    assert report.verdict.worst == Severity.INFO, report.verdict.summary
    decode = next(e for e in report.facts.engines if e.name == "decode-0")
    assert decode.traces.last("transfers_total") == 1.0 and decode.traces.version == "0.32.0"
    assert decode.traces.settings["kv_transfer_config.kv_connector"] == "NixlConnector"


def test_a_lease_that_nobody_uses_is_seen_to_expire(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    """The prefill's own watchdog: what cannot be seen of it is said, and is no failure."""
    capsys.readouterr()
    code = pair.pdctl("--json", "tune-timeout", "--verify", "--yes")
    said = capsys.readouterr().out
    (proof,) = json.loads(said[said.index("{") :])["proofs"]
    checks = {check["name"]: check for check in proof["checks"]}
    assert code == Exit.OK, proof
    assert checks["fired in time"]["ok"] and checks["counter moved by one"]["ok"], proof
    assert checks["a line in the log"]["ok"] and "lease" in proof["watchdog"], proof
    assert checks["error at the client"]["ok"] is None and checks["neighbours untouched"]["ok"] is None
    assert "Paris" in pair.text()


def test_a_transfer_that_a_frozen_prefill_stalls_is_named(pair: Pair) -> None:
    params = pair.ask(pair.ports[0], max_tokens=1, kv_transfer_params=ASK_PREFILL)["kv_transfer_params"]
    frozen = pair.inside("prefill-0")
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    leg = threading.Thread(target=lambda: pair.ask(pair.ports[1], kv_transfer_params=params), daemon=True)
    leg.start()
    try:
        report = pair.until_leads("prefill-0", "PD202")
        assert str(frozen[0]) in "".join(report.verdict.findings[0].finding.evidence)
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    leg.join(120.0)
    assert not leg.is_alive() and "Paris" in pair.text()


def test_a_killed_decode_leads_and_comes_back_alone(pair: Pair) -> None:
    with pair.context() as ctx:
        pid = ctx.units("local").status()["decode-0"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    pair.until_leads("decode-0", "PD201", "PD204")

    def ready() -> bool:
        with pair.context() as ctx:
            return collect_status(ctx).healthy

    until(ready, 600.0)
    report = pair.until_leads("decode-0", "PD204")
    assert "SIGKILL" in report.verdict.summary


def test_a_co_restart_heals_it(pair: Pair) -> None:
    assert pair.pdctl("restart", "--co", "--yes", "--wait", WAIT) == Exit.OK
    assert "Paris" in pair.text()
    report = pair.diagnosed()
    assert report.verdict.worst == Severity.INFO, report.verdict.summary
