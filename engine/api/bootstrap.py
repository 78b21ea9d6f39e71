"""The P/D fields of a body, by the role of the engine that reads them."""

from __future__ import annotations

from typing import Any, TypeVar

from engine.api.schema import Bootstrap
from engine.http.errors import ParamError

T = TypeVar("T")


def _one(name: str, value: T | list[T | None] | None) -> T | None:
    if not isinstance(value, list):
        return value
    if len(value) > 1:
        raise ParamError(name, "Batches are not supported: one prompt for each request.", "not_supported")
    return value[0] if value else None


def _need(name: str, value: Any, role: str) -> Any:
    if value is None:
        hint = "Send requests to the router, not to an engine of a prefill/decode pair."
        raise ParamError(name, f"A {role} engine needs {name}.", hint=hint)
    return value


def leg_of(body: Bootstrap, role: str, own_bootstrap: str | None) -> tuple[int | None, str | None]:
    """(room, peer) of a request; ParamError for fields that are missing for this role.

    `peer` is host:port of the prefill's link. A null port means the port this engine was started with.
    """
    host = _one("bootstrap_host", body.bootstrap_host)
    port = _one("bootstrap_port", body.bootstrap_port)
    room = _one("bootstrap_room", body.bootstrap_room)
    if role == "prefill":
        return _need("bootstrap_room", room, role), None
    if role == "decode":
        if port is None and own_bootstrap is not None:
            port = int(own_bootstrap.rpartition(":")[2])
        room = _need("bootstrap_room", room, role)
        return room, f"{_need('bootstrap_host', host, role)}:{_need('bootstrap_port', port, role)}"
    if room is not None:
        message = "This engine serves whole requests and is no leg of a pair."
        raise ParamError("bootstrap_room", message, hint="Check the role it was started with.")
    return None, None
