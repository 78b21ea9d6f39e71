"""The public sglang-router in a venv of its own, installed on first use below the cache."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

VERSION = "sglang-router==0.3.2"
HOME = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pdctl" / "sglang-router"


def ensure() -> Path:
    """Its venv's Python; the test is skipped with the reason where it cannot be installed."""
    python, stamp = HOME / "bin" / "python", HOME / ".ready"
    HOME.mkdir(parents=True, exist_ok=True)
    with open(HOME / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.is_file() and stamp.read_text() == VERSION:
            return python
        for step in (
            [sys.executable, "-m", "venv", str(HOME)],
            [str(python), "-m", "pip", "install", "-q", VERSION],
        ):
            done = subprocess.run(step, capture_output=True, text=True, timeout=900)
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["no words"])[-1]
                pytest.skip(f"{VERSION} could not be installed: {said}")
        stamp.write_text(VERSION)
    return python


def command(prefill: str, bootstrap: int, decode: str, port: int, metrics: int) -> list[str]:
    """Its command line for one pair; health is checked every two seconds, so that tests see it change."""
    legs = ["--prefill", prefill, str(bootstrap), "--decode", decode]
    return [
        str(ensure()), "-m", "sglang_router.launch_router", "--pd-disaggregation", *legs,
        "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics),
        "--policy", "round_robin", "--health-check-interval-secs", "2", "--request-timeout-secs", "60",
    ]  # fmt: skip
