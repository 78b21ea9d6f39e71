"""Identity: an incarnation is one life of an engine process group."""

from __future__ import annotations

import secrets


def new_incarnation() -> str:
    """A random 64-bit number as 16 hex digits; never reused, so never confused with an earlier life."""
    return secrets.token_hex(8)


def agent_name(instance: str, incarnation: str, rank: int) -> str:
    """NIXL agent name of one rank of one life."""
    return f"{instance}.{incarnation}.{rank}"


def new_request_id() -> str:
    return f"req-{secrets.token_hex(8)}"


def new_room() -> int:
    """A random positive 63-bit number, as the public routers draw it."""
    return secrets.randbits(63) or 1
