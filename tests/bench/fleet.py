"""Our side: a prefill/decode pair and the router, started as processes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.load import Target
from tests.bench.procs import Procs, free_ports, http_ok

NAME = "bench"
START_SECONDS = 180
# The same prompt is sent several ways, and each is to compute it.
EVERY_PROMPT = {"PD_PREFIX_CACHE": "0"}


@dataclass(frozen=True)
class Engine:
    """How an engine of the benchmark is started."""

    model: Path
    dtype: str = "bfloat16"
    pages: int = 1024
    flags: tuple[str, ...] = field(default_factory=tuple)
    threads: int = 0

    @property
    def env(self) -> dict[str, str]:
        """`threads` compute threads a rank; 0 leaves the choice to the engine."""
        return {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}

    def argv(self, instance: str, role: str, port: int, *more: str) -> list[str]:
        return [
            *(sys.executable, "-m", "engine", "serve", "--instance", instance, "--role", role),
            *("--model", str(self.model), "--host", "127.0.0.1", "--port", str(port), "--dtype", self.dtype),
            *("--pages", str(self.pages), "--served-model-name", NAME),
            *self.flags,
            *more,
        ]


def _router(port: int, prefill: int, link: int, decode: int) -> list[str]:
    return [
        *(sys.executable, "-m", "engine", "router", "--instance", "bench-router"),
        *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", NAME),
        *("--prefill", f"bench-prefill=http://127.0.0.1:{prefill},127.0.0.1:{link},bench"),
        *("--decode", f"bench-decode=http://127.0.0.1:{decode},bench"),
    ]


@dataclass(frozen=True)
class Pair:
    """A running pair behind its router. `pids` are prefill, decode, router; starts are in seconds."""

    router: Target
    prefill_url: str
    decode_url: str
    link_port: int
    pids: tuple[int, int, int]
    engines_start_s: float
    router_start_s: float


def start_pair(procs: Procs, engine: Engine, env: dict[str, str] = EVERY_PROMPT) -> Pair:
    """Start prefill, decode and router, each on a free port, and wait until they are ready."""
    prefill, link, decode, router = free_ports(4)
    cell, peer = ("--cell", "bench"), ("--peer", f"127.0.0.1:{link}")
    first = engine.argv("bench-prefill", "prefill", prefill, "--bootstrap-port", str(link), *cell)
    second = engine.argv("bench-decode", "decode", decode, *peer, *cell)
    pids = (
        procs.start("prefill", first, {**engine.env, **env}),
        procs.start("decode", second, engine.env),
    )
    urls = [f"http://127.0.0.1:{port}" for port in (prefill, decode, router)]
    engines = procs.wait("the pair", lambda: all(http_ok(f"{u}/ready") for u in urls[:2]), START_SECONDS)
    router_pid = procs.start("router", _router(router, prefill, link, decode))
    more = procs.wait("the router", lambda: http_ok(f"{urls[2]}/ready"), 60)
    return Pair(Target(urls[2], NAME), urls[0], urls[1], link, (*pids, router_pid), engines, more)
