"""Triton is interpreted or compiles for all of a process, from its import on: a lane each, a process each."""

from __future__ import annotations

import os

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore = ["aot"] if INTERPRETED else ["interp"]
