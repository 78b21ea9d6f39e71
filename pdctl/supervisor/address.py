"""Where the pages are: ADDRESS:PORT."""

from __future__ import annotations

from pdctl.errors import ConfigError

PAGE = "127.0.0.1:9470"


def parsed(address: str) -> tuple[str, int]:
    """(address, port); ConfigError when it is none."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError("page", f"{address!r} is no ADDRESS:PORT.", f"The default is {PAGE}.")
    return host, int(port)
