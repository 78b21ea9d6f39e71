"""The admin verb that changes timeouts: all of them or none."""

from __future__ import annotations

from typing import Any

from engine.core.settings import Settings


def set_timeouts(settings: Settings, args: dict[str, Any], now: float) -> dict[str, dict[str, object]]:
    """Apply {name or PD_* variable: seconds} and return the document; ConfigError changes nothing."""
    settings.set_all(args, now)
    return settings.document()
