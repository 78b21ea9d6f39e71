"""Whether a fleet serves, for what makes sense only on one that does."""

from __future__ import annotations

from pdctl.errors import PdctlError, UnreachableError
from pdctl.exits import Exit
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.deploy.gate import unready
from pdctl.flows.foreign import is_foreign, unhealthy


def need_serving(ctx: Context, what: str) -> None:
    """Everything is ready and the router admits. UnreachableError when a unit does not answer, PdctlError
    when one that does is not ready; `what` ends the sentence "there is nothing …".
    """
    missing = unready(ctx)
    if missing:
        said = "; ".join(f"{name}: {why.removesuffix(' yet')}" for name, why in missing.items())
        message = f"{ctx.fleet.name} does not serve, so there is nothing {what}: {said}."
        hint = "Run `pdctl diagnose` for the cause, or `pdctl deploy` if it was never started."
        if any(_silent(ctx, name) for name in missing):
            raise UnreachableError("not_serving", message, hint)
        raise PdctlError("not_serving", message, hint, exit=Exit.FINDINGS)
    router = ctx.fleet.router
    if router.kind == "bundled" and admin.get(ctx, router.url, "/v1/state").get("admission") != "open":
        message = f"The router holds requests back, so there is nothing {what}."
        raise PdctlError("not_serving", message, "`pdctl resume` opens admissions.", exit=Exit.FINDINGS)


def _silent(ctx: Context, name: str) -> bool:
    unit = ctx.fleet.unit(name)
    return bool(unhealthy(ctx, unit)) if is_foreign(unit) else not admin.state(ctx, unit.url)
