"""Real engines and a real router in their sandboxes: the hardening of the templates is one they bear."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pdctl.units.spec import UnitSpec
from tests.hosts.lab.host import LabHost, until
from tests.hosts.operator_home import MODELS
from tests.hosts.unit_bench import UnitBench

ROOT = Path(__file__).parents[2]
MODEL = Path.home() / MODELS / "smollm2-135m"
START = 120.0


class Pair:
    """A prefill, a decode and a router on one host as systemd units, run from a copy of this tree."""

    def __init__(self, bench: UnitBench, python: str) -> None:
        self.bench, self.python = bench, python
        self.tree = f"{bench.paths.root}/tree"
        for part in ("engine", "kernels", "profiles"):
            place = bench.host.root / f"{self.tree.lstrip('/')}/{part}"
            shutil.copytree(ROOT / part, place, ignore=shutil.ignore_patterns("__pycache__"))
        self.address = bench.host.address

    def install(self, name: str, role: str, *words: str, **changes: object) -> UnitSpec:
        serve = (
            ["router"]
            if role == "router"
            else ["serve", "--role", role, "--model", str(MODEL), "--cell", "a"]
        )
        if role != "router":
            serve += ["--pages", "256", "--advertise", self.address]
        argv = [*serve, "--instance", name, "--served-model-name", "m", "--host", self.address, *words]
        return self.bench.install(
            name,
            "",
            **{
                "argv": (self.python, "-m", "engine", *argv),
                "cwd": self.tree,
                "env": {"PYTHONPATH": self.tree, **({} if role == "router" else {"PD_RANK_TIMEOUT": "5"})},
                "role": role,
                "cell": "" if role == "router" else "a",
                "watchdog": 30.0,
                "start_timeout": START,
                "stop_timeout": 45.0,
                **changes,
            },
        )

    def complete(self) -> str:
        body = {"model": "m", "prompt": "The capital of France is", "max_tokens": 6, "temperature": 0}
        answer = httpx.post(f"http://{self.address}:8100/v1/completions", json=body, timeout=60.0)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["text"])


@pytest.fixture(params=["ops", "root"])
def pair(
    hosts: list[LabHost], home: Path, host_python: str, request: pytest.FixtureRequest
) -> Iterator[Pair]:
    if not MODEL.exists():
        pytest.skip("needs smollm2-135m: `pdctl model pull smollm2-135m`.")
    bench = UnitBench(hosts[0], request.param, "system", "real")
    pair = Pair(bench, host_python)
    yield pair
    bench.clear()
    shutil.rmtree(bench.host.root / pair.tree.lstrip("/"))


@pytest.mark.slow
def test_a_sandboxed_pair_answers_and_comes_back(pair: Pair) -> None:
    prefill, decode = f"{pair.address}:8101", f"{pair.address}:8103"
    pair.install("prefill-0", "prefill", "--port", "8101", "--bootstrap-port", "8102", numa=0)
    pair.install("decode-0", "decode", "--port", "8103", "--peer", f"{pair.address}:8102")
    pair.install(
        "router",
        "router",
        *("--port", "8100", "--prefill", f"prefill-0=http://{prefill},{pair.address}:8102,a"),
        *("--decode", f"decode-0=http://{decode},a"),
    )
    bench = pair.bench
    for name in ("prefill-0", "decode-0", "router"):
        bench.units.start(name)
    for name in ("prefill-0", "decode-0", "router"):
        bench.until(name, lambda s: s.state == "active", START)
    until(lambda: httpx.get(f"http://{pair.address}:8100/ready").status_code == 200, 30.0, "the router ready")
    first = pair.complete()
    assert "Paris" in first
    status = bench.until("decode-0", lambda s: s.status == "ready")
    bench.host.sh(
        f"kill -STOP $(pgrep -P {status.pid} | head -1)"
    )  # the leader rank: no progress from now on
    again = bench.until("decode-0", lambda s: s.restarts == 1 and s.status == "ready", START)
    assert (again.exit_code, again.started_by) == (72, "supervisor")
    until(lambda: httpx.get(f"http://{pair.address}:8100/ready").status_code == 200, 30.0, "the router ready")
    assert pair.complete() == first
    stopped = bench.units.stop("decode-0")
    assert (stopped.state, stopped.reason) == ("inactive", "stopped")
