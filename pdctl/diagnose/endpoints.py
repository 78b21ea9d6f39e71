"""Addresses and ports that lines name, and whose they are; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pdctl.adapters.traces import Event, Socket
from pdctl.diagnose.facts import Facts, HostView, Party

_HOST = r"(?P<host>\[[0-9A-Fa-f:]+\]|[A-Za-z0-9][\w.-]*|\*|)"
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"(?:tcp|https?|ipc)://{_HOST}:(?P<port>\d{{2,5}})\b",
        r"host='?(?P<host>[\w.:-]+)'?, port=(?P<port>\d{2,5})",
        r"\('?(?P<host>[\w.:-]*)'?, (?P<port>\d{2,5})\)",
        r"\[(?P<host>[A-Za-z0-9][\w.:-]*)\]:(?P<port>\d{2,5})\b",
        r"\b(?P<host>\d{1,3}(?:\.\d{1,3}){3}):(?P<port>\d{2,5})\b",
        r"\b(?P<host>localhost|[A-Za-z][\w-]*(?:\.[\w-]+)*)(?<!\.py)(?<!\.rs)(?<!\.cc)(?<!\.go)(?<!\.cpp)"
        r"(?<!\.c)(?<!\.h)(?<!\.cu)(?<!\.hpp)"
        r":(?P<port>\d{3,5})\b(?!:)",
        r"\bport:? ?(?P<port>\d{2,5})\b(?P<host>)",
        r":(?P<port>\d{4,5})\)(?P<host>)",
    )
)
_LOOP = re.compile(r"^(?:127\.\d+\.\d+\.\d+|localhost|::1)$")
_ANY = ("0.0.0.0", "::", "*", "")
# Settings and variables that give a server a port: by a number, or at the end of an address.
_PORT_NAME = re.compile(r"(?i)(?:^|[_.])port$|addr|endpoint|rendezvous|proxy|publisher")
_PORT_VALUE = re.compile(r"(?:^|:)(?P<port>\d{3,5})$")


@dataclass(frozen=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.host else f"port {self.port}"


def endpoint(line: str) -> Endpoint | None:
    """The first address with a port that `line` names."""
    for form in _FORMS:
        if found := form.search(line):
            return Endpoint(found["host"].strip("[]"), int(found["port"]))
    return None


def loopback(host: str) -> bool:
    return bool(_LOOP.match(host))


def anywhere(host: str) -> bool:
    """A listener on it is reached by every address of its host."""
    return host in _ANY


def by_endpoint(events: Iterable[Event]) -> dict[Endpoint, list[Event]]:
    """Lines by the address that they name; those that name none are left out."""
    found: dict[Endpoint, list[Event]] = {}
    for event in events:
        if at := endpoint(event.line):
            found.setdefault(at, []).append(event)
    return found


def addresses(host: HostView) -> set[str]:
    """All that the host is known to be called; empty when nobody said."""
    found = {host.address} - {""}
    for interface in host.traces.interfaces:
        found |= set(interface.addresses)
    return found


def owner(facts: Facts, at: Endpoint) -> HostView | None:
    """The host that has this address."""
    return next((h for h in facts.hosts if at.host in (h.name, *addresses(h))), None)


def listeners(host: HostView, port: int) -> list[Socket]:
    return [s for s in host.traces.sockets if s.port == port]


def ports(party: Party) -> dict[int, str]:
    """Ports that the party was told to use -> by which setting or variable."""
    told = {**party.traces.settings, **party.traces.environ}
    return {
        int(found["port"]): name
        for name, value in told.items()
        if _PORT_NAME.search(name) and (found := _PORT_VALUE.search(value))
    }


_BACK = ("router.breaker_closed", "router.worker_back")


def recovered(facts: Facts, events: Iterable[Event]) -> bool:
    """After the last of these lines their writer was ready, computed or took the peer back, or the peer that
    they name became ready.
    """
    last = {e.party: e for e in events}
    return all(
        (party := facts.party(name)) is not None and (_well_again(party, event) or _peer_back(facts, event))
        for name, event in last.items()
    )


def _peer_back(facts: Facts, event: Event) -> bool:
    at = endpoint(event.line)
    if at is None or event.at is None:
        return False
    host = owner(facts, at)
    there = [
        p
        for p in facts.parties
        if p.member.url.endswith(f"//{at}") or (host and p.member.host == host.name and at.port in ports(p))
    ]
    return any(e.at is not None and e.at > event.at for p in there for e in p.traces.of("net.ready"))


def taken_back(party: Party, event: Event) -> bool:
    """A router that wrote `event` of a worker lets it serve again after that line."""
    at = endpoint(event.line)
    return any(
        e.order > event.order and (at is None or endpoint(e.line) in (None, at))
        for e in party.traces.of(*_BACK)
    )


def _well_again(party: Party, event: Event) -> bool:
    return taken_back(party, event) or any(e.order > event.order for e in party.traces.of("net.ready"))


_NICS = re.compile(
    r"local_nic(?:_path)?:? *(?:[\w.]+:\d+@)?(?P<local>[a-z]\w*).*?"
    r"peer_nic(?:_path)?:? *(?P<at>[\w.]+:\d+@)(?P<peer>[a-z]\w*)"
)


def one_nic(events: Iterable[Event]) -> str:
    """The local NIC of every line that names one, where their peers' NICs or hosts vary; "" otherwise."""
    named = [found for e in events if (found := _NICS.search(e.line))]
    peers = {found["at"] + found["peer"] for found in named}
    local = {found["local"] for found in named}
    return local.pop() if len(local) == 1 and len(peers) > 1 else ""


def crossed_rails(events: Iterable[Event]) -> str:
    """ "mlx5_0 to mlx5_1" where every line that names both NICs names different ones; "" otherwise."""
    named = [found for e in events if (found := _NICS.search(e.line))]
    if not named or any(found["local"] == found["peer"] for found in named):
        return ""
    return f"{named[0]['local']} to {named[0]['peer']}"
