"""The HTTP surface of one engine: OpenAI and native routes, state, admin verbs, metrics."""

from engine.api.app import build_app

__all__ = ["build_app"]
