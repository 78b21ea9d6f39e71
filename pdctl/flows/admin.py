"""Admin verbs and documents of engines and router, with the fleet token."""

from __future__ import annotations

from typing import Any

from pdctl.errors import ConfigError, PdctlError, UnreachableError
from pdctl.exits import Exit
from pdctl.fleet.tokens import read_drill_token
from pdctl.flows.changing import doing
from pdctl.flows.context import Context
from pdctl.flows.foreign import is_foreign
from pdctl.flows.http import call, error_of


def post(
    ctx: Context,
    url: str,
    verb: str,
    body: dict[str, Any] | None = None,
    *,
    drill: bool = False,
    timeout: float = 10.0,
) -> dict[str, Any]:
    """POST `url`/admin/`verb`, as a step of the run; a refusal is a PdctlError with the engine's own code."""
    unit = next((u for u in ctx.fleet.units() if u.url == url), None)
    name, host = (unit.name, unit.host) if unit else (url, "fleet")
    said = ", ".join(f"{key} {value}" for key, value in (body or {}).items())
    with doing(ctx, f"admin/{verb}/{name}", host, f"{name}: {verb}{' ' if said else ''}{said}"):
        return _post(ctx, url, verb, body, drill, timeout)


def _post(
    ctx: Context, url: str, verb: str, body: dict[str, Any] | None, drill: bool, timeout: float
) -> dict[str, Any]:
    _of_ours(ctx, url)
    headers = ctx.admin_headers()
    if drill:
        headers["X-Drill-Token"] = read_drill_token(ctx.fleet)
    status, answer = call(ctx, "POST", f"{url}/admin/{verb}", timeout, body or {}, headers)
    if status >= 400:
        said = answer.get("error")
        code = said.get("code") if isinstance(said, dict) else None
        message = f"{url}/admin/{verb} answered {status}: {error_of(answer)}"
        raise PdctlError(str(code or "refused"), message, exit=Exit.FINDINGS)
    return answer


def _of_ours(ctx: Context, url: str) -> None:
    """ConfigError where pdctl's own verbs and documents are not known: they are not even asked for."""
    for unit in (*ctx.fleet.units(), ctx.fleet.router):
        if unit.url == url and is_foreign(unit):
            if unit.kind == "none":
                raise ConfigError("no_router", "The fleet file names no router, so this cannot be asked.")
            said = f"{unit.name} is of kind {unit.kind}, which has no admin verbs and no state for pdctl."
            raise ConfigError("not_bundled", said)


def timeouts(ctx: Context, url: str, timeout: float = 10.0) -> dict[str, float]:
    """The timeouts in force by name, seconds, as the verb that sets them answers: it is given none to set."""
    answer = _post(ctx, url, "timeouts", {}, False, timeout)
    return {name: float(row["value"]) for name, row in answer.items()}


def get(ctx: Context, url: str, path: str, timeout: float = 5.0) -> dict[str, Any]:
    """GET a document; UnreachableError when the answer is not 200."""
    _of_ours(ctx, url)
    status, answer = call(ctx, "GET", f"{url}{path}", timeout)
    if status != 200:
        raise UnreachableError("no_answer", f"{url}{path} answered {status}: {error_of(answer)}")
    return answer


def state(ctx: Context, url: str, timeout: float = 2.0) -> dict[str, Any]:
    """GET /v1/state, or {} when it cannot be had: for loops that wait for it."""
    try:
        return get(ctx, url, "/v1/state", timeout)
    except PdctlError:
        return {}
