"""Open admissions again: release the router's hold and cordons, end what drains left behind."""

from __future__ import annotations

from pdctl.errors import ConfigError
from pdctl.flows import admin
from pdctl.flows.context import Context


def resume(ctx: Context) -> list[str]:
    """What was opened, one sentence each; empty when nothing was held. UnreachableError without a router."""
    router = ctx.fleet.router
    done = []
    state = admin.get(ctx, router.url, "/v1/state")
    for engine in ctx.fleet.engines():
        status = admin.state(ctx, engine.url).get("status")
        if status in ("draining", "drained"):
            admin.post(ctx, engine.url, "resume")
            done.append(f"{engine.name} was {status} and takes requests again")
    for entry in state.get("engines", []):
        if entry.get("cordoned"):
            admin.post(ctx, router.url, "cordon", {"engine": entry["instance"], "cordoned": False})
            done.append(f"{entry['instance']} is no longer cordoned")
    if state.get("admission") == "held":
        admin.post(ctx, router.url, "resume")
        done.append(f"the router admits again; {state.get('held', 0)} requests had waited")
    return done


def abort(ctx: Context, id: str) -> None:
    """End one request at the router and with it both legs; ConfigError when the router does not know it."""
    answer = admin.post(ctx, ctx.fleet.router.url, "abort", {"id": id})
    if answer.get("aborted") is False:
        raise ConfigError("unknown_request", f"The router has no request {id}.", "See `pdctl requests`.")
