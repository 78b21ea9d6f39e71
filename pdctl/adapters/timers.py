"""Timers of engines and routers of other kinds: where each is set, and its default; pure.

A row holds the variable or the setting (launch/names.py) that sets it. One whose default is None does
nothing until it is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pdctl.adapters.picture import Timeout

_EXTRA = "kv_transfer_config.kv_connector_extra_config"
_DISAGG = "SGLANG_DISAGGREGATION"


@dataclass(frozen=True)
class Timer:
    """`roles` are those that have it; `needs` a word of the connector's name without which it has no use."""

    name: str
    source: str
    default: float | None
    roles: tuple[str, ...] = ("prefill", "decode", "both")
    needs: str = ""


TIMERS: dict[str, tuple[Timer, ...]] = {
    "sglang": (
        Timer("bootstrap", f"{_DISAGG}_BOOTSTRAP_TIMEOUT", 300.0, ("prefill",)),
        Timer("waiting", f"{_DISAGG}_WAITING_TIMEOUT", 300.0, ("decode",)),
        Timer("transfer", f"{_DISAGG}_TRANSFER_TIMEOUT", None, ("prefill", "decode")),
        Timer("inflight", "SGLANG_DSV4_PREFILL_INFLIGHT_TIMEOUT", None, ("prefill",)),
        Timer("heartbeat_interval", f"{_DISAGG}_HEARTBEAT_INTERVAL", 5.0, ("decode",)),
        Timer("watchdog", "watchdog_timeout", 300.0),
        Timer("health", "SGLANG_HEALTH_CHECK_TIMEOUT", 20.0),
    ),
    "vllm": (
        Timer("kv_lease", f"{_EXTRA}.kv_lease_duration", 30.0, ("prefill", "both"), "nixl"),
        Timer("kv_hold", "VLLM_NIXL_ABORT_REQUEST_TIMEOUT", None, ("prefill", "both"), "nixl"),
        Timer("kv_ttl", f"{_EXTRA}.decoder_kv_blocks_ttl", 480.0, ("decode", "both"), "nixl"),
        Timer("peer_ttl", f"{_EXTRA}.engine_ttl", 3600.0, needs="nixl"),
        Timer("kv_hold", "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT", 480.0, ("prefill", "both"), "mooncake"),
        Timer("transfer", "MC_TRANSFER_TIMEOUT", 30.0, needs="mooncake"),
    ),
    "sglang-router": (
        Timer("router_total", "request_timeout_secs", 1800.0, ("router",)),
        Timer("router_health_interval", "health_check_interval_secs", 60.0, ("router",)),
        Timer("router_health", "health_check_timeout_secs", 5.0, ("router",)),
        Timer("router_breaker", "cb_timeout_duration_secs", 60.0, ("router",)),
    ),
}


def timers(
    kind: str, role: str, settings: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, Timeout]:
    """The timers in force, seconds; one that is set to what is no number is left out."""
    connector = settings.get("kv_transfer_config.kv_connector", "").lower()
    found: dict[str, Timeout] = {}
    for timer in TIMERS.get(kind, ()):
        if role not in timer.roles or timer.needs not in connector:
            continue
        set_to = environ.get(timer.source) if timer.source.isupper() else settings.get(timer.source)
        try:
            value = timer.default if set_to is None else float(set_to)
        except ValueError:
            continue
        if value is not None and value >= 0:
            where = "default" if set_to is None else "env" if timer.source.isupper() else "flag"
            found[timer.name] = Timeout(timer.name, value, timer.source, where, False)
    return found
