"""Admin verbs need the fleet token; faults also need the drill token. Tokens come from files."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request

from engine.core.errors import ConfigError, RequestError

log = logging.getLogger("pdctl.engine")
FLEET_TOKEN_FILE = "PD_FLEET_TOKEN_FILE"
DRILL_TOKEN_FILE = "PD_DRILL_TOKEN_FILE"


def token_from(env: Mapping[str, str], variable: str) -> str | None:
    """The token in the file that `variable` names, None when unset; ConfigError when it cannot be used. One
    that others can read, as secrets mounted into a container are, is taken and said.
    """
    path = env.get(variable)
    if not path:
        return None
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
        mode = Path(path).stat().st_mode & 0o777
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError("token_unreadable", f"{variable}: {path} cannot be read: {e}.") from None
    if not token:
        raise ConfigError("token_empty", f"{variable}: {path} is empty.")
    if mode & 0o077:
        log.warning("%s: others can read %s (mode %04o, better 0600)", variable, path, mode)
    return token


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())


def require_admin(request: Request, token: str | None) -> None:
    """RequestError 403 when no token is configured, 401 when the request does not carry it."""
    if token is None:
        raise RequestError(
            "admin_disabled", "Admin verbs are off.", 403, f"Start the process with {FLEET_TOKEN_FILE}."
        )
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not given.strip():
        raise RequestError("token_missing", "Admin verbs need Authorization: Bearer <fleet token>.", 401)
    if not _same(given.strip(), token):
        raise RequestError("token_wrong", "This is not the fleet token of this process.", 401)


def require_drill(request: Request, drill: str | None) -> None:
    """RequestError 403 unless the process was started for drills and the request carries its token."""
    if drill is None:
        raise RequestError(
            "drill_disabled", "Faults are off.", 403, f"Start the process with {DRILL_TOKEN_FILE}."
        )
    if not _same(request.headers.get("x-drill-token", ""), drill):
        raise RequestError("drill_token_wrong", "Faults need the drill token in X-Drill-Token.", 403)
