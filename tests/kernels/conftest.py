"""Triton is interpreted or compiles for all of a process, from its import on: a lane each, a process each."""

from __future__ import annotations

import importlib.util
import os

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TRITON = importlib.util.find_spec("triton") is not None
collect_ignore = ["aot"] if INTERPRETED else ["interp"]
if not TRITON:
    collect_ignore += ["aot", "test_interpreted.py", "test_streams.py"]


def pytest_report_header() -> str:
    return (
        ""
        if TRITON
        else "tests/kernels: no triton on this machine, kernels are neither interpreted nor built"
    )
