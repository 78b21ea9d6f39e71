"""Link one edge anew: both its ends drop the link and what they hold of each other, and no process ends."""

from __future__ import annotations

import time
from typing import Any

from pdctl.errors import ConfigError, DeadlineError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Engine
from pdctl.flows import admin
from pdctl.flows.changing import changing, doing
from pdctl.flows.context import Context
from pdctl.flows.edge_canary import send
from pdctl.flows.waiting import until
from pdctl.remote.journal import Call

# Between the names of an edge's ends, as findings write it.
EDGE = " -> "
# Seconds in which a pair that is well has linked: connect and handshake take a fraction of one.
LINK = 20.0
CANARY = 30.0
NEVER = float("-inf")


def edge_of(ctx: Context, one: str, other: str) -> tuple[Engine, Engine]:
    """(prefill, decode), in whichever order they were named; ConfigError when they are no edge."""
    ends = {ctx.fleet.engine(one).name, ctx.fleet.engine(other).name}
    for prefill, decode in ctx.fleet.edges():
        if {prefill.name, decode.name} == ends:
            return prefill, decode
    raise ConfigError("no_edge", f"{one} and {other} are no prefill and decode of one cell.")


def relink(
    ctx: Context, prefill: Engine, decode: Engine, wait: float = LINK, lock_wait: float = 0.0
) -> float:
    """Seconds until both ends are linked again and a canary has passed.

    PdctlError when they do not link or the canary fails, LockedError when the fleet cannot be had.
    """
    names = f"{prefill.name} {decode.name}"
    call = Call(f"relink {names}", ("relink", *names.split(), "--yes", "--wait", f"{wait:g}"))
    with changing(ctx, call, lock_wait):
        return relink_now(ctx, prefill, decode, wait)


def relink_now(ctx: Context, prefill: Engine, decode: Engine, wait: float = LINK) -> float:
    """The same within a run that holds the fleet. Prefill first, for decode dials."""
    ctx.say(f"linking {prefill.name}{EDGE}{decode.name} anew")
    for asked, peer in ((prefill, decode), (decode, prefill)):
        asked_at = time.monotonic()
        try:
            admin.post(ctx, asked.url, "relink", {"peer": peer.name})
        except PdctlError as error:
            if error.code != "unknown_peer":  # nothing is there to drop
                raise
    with doing(ctx, f"linked/{prefill.name}/{decode.name}", decode.host, "wait for the link", changes=False):
        try:
            seconds = until(lambda: unlinked(ctx, prefill, decode, asked_at), wait)
        except DeadlineError as error:
            raise DeadlineError("not_linked", error.message, _next(decode)) from None
    with doing(ctx, f"canary/{prefill.name}/{decode.name}", decode.host, "canary over it", changes=False):
        canary = send(ctx, prefill, decode, "small", CANARY)
    if canary.problem:
        why = f"{prefill.name}{EDGE}{decode.name} is linked and the canary over it failed: {canary.problem}."
        raise PdctlError("canary_failed", why, _next(decode), exit=Exit.FINDINGS)
    return seconds + canary.seconds


def unlinked(ctx: Context, prefill: Engine, decode: Engine, asked_at: float = NEVER) -> str:
    """What is missing for the edge to be linked between the present lives of both, "" for nothing.

    Engines answer before they drop a link: after `asked_at` (of this process's clock) an older one is none.
    """
    for one, other in ((prefill, decode), (decode, prefill)):
        life = admin.state(ctx, other.url).get("incarnation")
        asked_for = time.monotonic() - asked_at
        state = admin.state(ctx, one.url)
        newest = asked_for - (state.get("snapshot_age_s") or 0.0)
        rows = [p for p in state.get("peers", []) if _is(p, other)]
        linked = [p for p in rows if p["linked"] and not p["stale"] and p["since_age_s"] <= newest]
        if life is None or not any(p["incarnation"] == life for p in linked):
            said = "; ".join(dict.fromkeys(str(p["error"]) for p in rows if p["error"]))
            return f"{one.name} is not linked with {other.name}{f' ({said})' if said else ''}"
    return ""


def _is(peer: dict[str, Any], engine: Engine) -> bool:
    """Also a prefill that has not said its name yet."""
    return peer["instance"] == engine.name or peer["address"] == f"{engine.address}:{engine.bootstrap_port}"


def _next(decode: Engine) -> str:
    return f"If it does not link, restart the pair: pdctl restart --co {decode.cell}"
