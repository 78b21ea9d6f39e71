"""Adopt what runs today: open the hosts that the operator names, read, write the fleet."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pdctl.adopt.adopt import Adopted, Wanted, adopt, slug
from pdctl.adopt.assemble import Address
from pdctl.adopt.files import given_files
from pdctl.adopt.sources import Given, Place
from pdctl.adopt.write import quoted
from pdctl.errors import ConfigError
from pdctl.fleet.model import Host
from pdctl.fleet.names import nearest
from pdctl.fleet.problems import NAME_RULE
from pdctl.fleet.schema import NAME, HostTable
from pdctl.flows.init import remote
from pdctl.transport.open import open_transport

_PLACED = re.compile(r"([a-z0-9][a-z0-9-]{0,39})=(.+)", re.DOTALL)


@dataclass(frozen=True)
class Asked:
    """As the command line has it. `ssh` are SSH[=ADDRESS]; `set` NAME=VALUE, or NAME as it is here."""

    sources: list[str]
    ssh: list[str]
    host: str | None
    out: Path
    name: str | None
    role: str | None
    set: list[str]
    unset: list[str]
    sourced: list[str]


def run(asked: Asked) -> Adopted:
    """ConfigError for what cannot be read or is not known; nothing is written then."""
    name = asked.name or slug(_bare(asked.sources[0]))
    if not re.fullmatch(NAME, name):
        raise ConfigError("bad_name", f"--name {name!r} {NAME_RULE}")
    given = Given(answers(asked.set), frozenset(asked.unset), given_files(asked.sourced))
    with ExitStack() as stack:
        places, hosts = _places(asked, stack)
        sources = [_placed(source, places) for source in asked.sources]
        return adopt(Wanted(sources, hosts, asked.out, name, asked.role, given))


def _bare(source: str) -> str:
    found = _PLACED.fullmatch(source)
    return found[2] if found else source


def _places(
    asked: Asked, stack: ExitStack
) -> tuple[dict[str, Place], dict[str, tuple[list[str], Address | None]]]:
    """Every host that a source may be on, and what of its table is known."""
    places: dict[str, Place] = {}
    hosts: dict[str, tuple[list[str], Address | None]] = {}
    targets = [remote(text) for text in asked.ssh]
    for target, text in zip(targets, asked.ssh, strict=True):
        name = asked.host if asked.host and len(targets) == 1 else target.name
        table = HostTable(transport="ssh", address=target.address, ssh=target.ssh)
        transport = open_transport(Host(name, table, ""))
        stack.callback(transport.close)
        places[name] = Place(name, transport, "/usr/bin/python3", True)
        rows = ['transport = "ssh"', f"ssh = {quoted(target.ssh)}"]
        hosts[name] = (rows, Address(target.address, "=" in text))
    if not targets:
        name = asked.host or "local"
        local = open_transport(Host(name, HostTable(), ""))
        places[name] = Place(name, local, sys.executable, False)
        hosts[name] = (['transport = "local"'], None)
    return places, hosts


def _placed(source: str, places: dict[str, Place]) -> tuple[Place, str]:
    """The host of a source: NAME=SOURCE, else the only one there is."""
    found = _PLACED.fullmatch(source)
    if found and found[1] in places:
        return places[found[1]], found[2]
    if len(places) == 1:
        return next(iter(places.values())), source
    what = f"{source}: on which host is it?" if found is None else f"{source}: there is no host {found[1]}."
    raise ConfigError("which_host", what, f"Write NAME=SOURCE. {nearest('', places)}")


def answers(options: list[str]) -> dict[str, str]:
    """NAME=VALUE or $(…)=VALUE; NAME alone is its value in this very environment."""
    found: dict[str, str] = {}
    for option in options:
        end = _closing(option) if option.startswith(("$", "`")) else option.find("=")
        if end < 0 and option in os.environ:
            found[option] = os.environ[option]
        elif end <= 0 or option[end : end + 1] != "=":
            hint = "Write --set NAME=VALUE, or --set NAME for a variable of this environment."
            raise ConfigError("bad_set", f"--set {option!r} names no value.", hint)
        else:
            found[option[:end]] = option[end + 1 :]
    return found


def _closing(text: str) -> int:
    """Where a substitution that `text` begins with has ended; -1 when it has not."""
    if text.startswith("`"):
        return text.find("`", 1) + 1 or -1
    depth = 0
    for at, char in enumerate(text):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(char, 0)
        if depth == 0 and at:
            return at + 1 if char in ")}" else text.find("=")
    return -1
