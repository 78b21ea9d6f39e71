"""The router's command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from engine.core.errors import ConfigError
from engine.router.pairs import Engine

_PREFILL = "NAME=URL,BOOTSTRAP_HOST:PORT,CELL"
_DECODE = "NAME=URL,CELL"


@dataclass(frozen=True)
class RouterConfig:
    instance: str
    host: str
    port: int
    engines: tuple[Engine, ...]
    served_model_name: str


def _bad(text: str, form: str, why: str) -> ConfigError:
    return ConfigError("bad_engine", f"{text!r}: {why}.", f"Expected {form}.")


def _url(text: str, url: str, form: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as e:
        raise _bad(text, form, f"{url!r} is not http://host:port ({e})") from None
    if parts.scheme not in ("http", "https") or not host or not port or parts.path.strip("/"):
        raise _bad(text, form, f"{url!r} is not http://host:port")
    return url.rstrip("/")


def _split(text: str, form: str) -> tuple[str, list[str]]:
    name, _, rest = text.partition("=")
    fields = rest.split(",")
    if not name or len(fields) != form.count(",") + 1 or not all(fields):
        raise _bad(text, form, "it has not the right parts")
    return name, fields


def parse_prefill(text: str) -> Engine:
    """`NAME=URL,BOOTSTRAP_HOST:PORT,CELL`, or ConfigError."""
    name, (url, bootstrap, cell) = _split(text, _PREFILL)
    host, _, port = bootstrap.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise _bad(text, _PREFILL, f"{bootstrap!r} is not host:port")
    return Engine(name, "prefill", cell, _url(text, url, _PREFILL), (host, int(port)))


def parse_decode(text: str) -> Engine:
    """`NAME=URL,CELL`, or ConfigError."""
    name, (url, cell) = _split(text, _DECODE)
    return Engine(name, "decode", cell, _url(text, url, _DECODE))


def parse_args(argv: Sequence[str]) -> RouterConfig:
    """The configuration in `argv`; ConfigError for engines that cannot be; argparse exits 2 for the rest."""
    parser = argparse.ArgumentParser(prog="python -m engine router", allow_abbrev=False)
    parser.add_argument("--instance", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--prefill", action="extend", nargs="+", default=[], metavar=_PREFILL)
    parser.add_argument("--decode", action="extend", nargs="+", default=[], metavar=_DECODE)
    parser.add_argument("--served-model-name", default="default")
    args = parser.parse_args(argv)
    if not 0 <= args.port <= 65535:
        raise ConfigError("bad_flag", f"--port is {args.port}, not a port of 0..65535.")
    engines = [*map(parse_prefill, args.prefill), *map(parse_decode, args.decode)]
    if len({e.instance for e in engines}) < len(engines):
        raise ConfigError("bad_engine", "Two engines have the same name.", "Names are unique in a fleet.")
    for role in ("prefill", "decode"):
        if not any(e.role == role for e in engines):
            raise ConfigError("no_engine", f"The router was given no {role}.", f"Add --{role}.")
    return RouterConfig(args.instance, args.host, args.port, tuple(engines), args.served_model_name)
