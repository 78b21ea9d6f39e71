"""Mutual authentication and compatibility of two leaders. Pure: no sockets, no clock.

Each side proves the fleet token by an HMAC-SHA256 over its direction, both nonces and its whole
introduction (incarnation, agents and all), so nothing of it can be replayed or changed on the way and
the token itself is never sent.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from engine.transfer.commands import AgentInfo
from engine.transfer.layout import OPAQUE, REPLICATED, covers, unit_of
from engine.transfer.messages import VERSION, Hello, Refuse, Welcome

# Equal on both sides; of the two page sizes one must divide the other. `tp` is carried too and may differ.
FINGERPRINT = ("model", "dtype", "layout", "layers", "kv_heads", "head_dim")
NONCE_BYTES = 16
T = TypeVar("T", Hello, Welcome)


class PeerKey(NamedTuple):
    """One life of one engine."""

    instance: str
    incarnation: str

    def __str__(self) -> str:
        return f"{self.instance}/{self.incarnation}"


@dataclass(frozen=True)
class Identity:
    """What this engine introduces itself with."""

    instance: str
    incarnation: str
    role: str
    fingerprint: dict[str, str | int]
    agents: list[AgentInfo] = field(default_factory=list)

    @property
    def key(self) -> PeerKey:
        return PeerKey(self.instance, self.incarnation)


@dataclass(frozen=True)
class Peer:
    """An authenticated, compatible other side. `address` is host:port of its link, as dialed or seen."""

    key: PeerKey
    address: str
    agents: list[AgentInfo]
    page_size: int

    @classmethod
    def of(cls, intro: Hello | Welcome, address: str) -> Peer:
        """From an introduction that was not refused."""
        size = intro.fingerprint["page_size"]
        return cls(PeerKey(intro.instance, intro.incarnation), address, intro.agents, int(size))

    @property
    def pages(self) -> int:
        """Pages every rank of it has, the scratch page included."""
        return min((a.pages for a in self.agents), default=0)


def hello(me: Identity, token: bytes, expects: str | None, mine: bytes, theirs: bytes) -> Hello:
    return sign(_introduce(Hello, me, expects, mine), token, theirs)


def welcome(me: Identity, token: bytes, expects: str | None, mine: bytes, theirs: bytes) -> Welcome:
    return sign(_introduce(Welcome, me, expects, mine), token, theirs)


def _introduce(kind: type[T], me: Identity, expects: str | None, nonce: bytes) -> T:
    return kind(
        instance=me.instance,
        role=me.role,
        incarnation=me.incarnation,
        expects=expects,
        version=VERSION,
        fingerprint=me.fingerprint,
        agents=me.agents,
        nonce=nonce,
    )


def sign(intro: T, token: bytes, other_nonce: bytes) -> T:
    return msgspec.structs.replace(intro, mac=_mac(intro, token, other_nonce))


def _mac(intro: Hello | Welcome, token: bytes, other_nonce: bytes) -> bytes:
    bare = msgspec.msgpack.encode(msgspec.structs.replace(intro, mac=b""))
    return hmac.digest(token, len(other_nonce).to_bytes(4, "big") + other_nonce + bare, "sha256")


def refusal(intro: Hello | Welcome, me: Identity, token: bytes, my_nonce: bytes) -> Refuse | None:
    """Why this introduction is not accepted, or None. The token comes first: a stranger learns nothing."""
    if len(intro.nonce) != NONCE_BYTES or not hmac.compare_digest(_mac(intro, token, my_nonce), intro.mac):
        return Refuse("link_unauthorized", "mac", "The fleet tokens of the two engines differ.")
    if intro.version != VERSION:
        return Refuse("peer_incompatible", "version", f"Link version {intro.version}, here {VERSION}.")
    if {intro.role, me.role} != {"prefill", "decode"}:
        return Refuse("peer_incompatible", "role", f"A {me.role} engine does not link with a {intro.role}.")
    for name in FINGERPRINT:
        theirs, ours = intro.fingerprint.get(name), me.fingerprint.get(name)
        if theirs != ours:
            text = f"{name} of {intro.instance} is {theirs}, of {me.instance} it is {ours}."
            return Refuse("peer_incompatible", name, text)
    theirs, ours = intro.fingerprint.get("page_size"), me.fingerprint.get("page_size")
    if not isinstance(theirs, int) or not isinstance(ours, int) or unit_of(theirs, ours) is None:
        text = f"page_size of {intro.instance} is {theirs}, of {me.instance} it is {ours}: "
        return Refuse("peer_incompatible", "page_size", text + "neither is a multiple of the other.")
    if theirs != ours and me.fingerprint.get("layout") == OPAQUE:
        text = f"page_size of {intro.instance} is {theirs}, of {me.instance} it is {ours}: "
        return Refuse("peer_incompatible", "page_size", text + "pages of this model move whole.")
    return _agents_refusal(intro, me)


def _agents_refusal(intro: Hello | Welcome, me: Identity) -> Refuse | None:
    heads = me.fingerprint.get("kv_heads")
    ranks = [a.rank for a in intro.agents]
    if ranks != list(range(len(ranks))) or not isinstance(heads, int):
        return Refuse("peer_incompatible", "agents", f"{intro.instance} lists ranks {ranks}.")
    whole = me.fingerprint.get("layout") in (REPLICATED, OPAQUE)
    if not covers(heads, [a.heads for a in intro.agents], whole):
        return Refuse(
            "peer_incompatible", "agents", f"The ranks of {intro.instance} do not share {heads} heads."
        )
    return None
