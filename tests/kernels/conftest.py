"""The lanes in Triton's interpreter run in a process of their own: it is chosen before triton is imported."""

from __future__ import annotations

import os

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore = [] if INTERPRETED else ["interp"]
