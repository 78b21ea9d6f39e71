"""Engines and routers of other kinds: which path answers 200 when they take requests."""

from __future__ import annotations

# A router is ready when it has a pair.
HEALTH = {"sglang": "/health", "vllm": "/health", "sglang-router": "/readiness"}
# SGLang computes a token for its answer: a second when idle, up to twenty under load.
PATIENCE = 21.0
