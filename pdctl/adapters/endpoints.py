"""What is asked of a server, as values: its kind's endpoints, and the documents that its answers become."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httpx

from pdctl.adapters.picture import Reach
from pdctl.adapters.probe import DEADLINE, Answer, fetch


@dataclass(frozen=True)
class Server:
    """One engine or router that is asked. `bootstrap` is "address:port" of a prefill's link, `metrics_port`
    the port of a router's metrics where that is another than its own.
    """

    name: str
    kind: str
    role: str
    url: str
    bootstrap: str | None = None
    metrics_port: int | None = None

    def at(self, port: int) -> str:
        """Its URL with another port."""
        return f"{self.url.rpartition(':')[0]}:{port}"


@dataclass(frozen=True)
class Endpoint:
    """One GET. `document` names its file, `older` is the path that earlier versions have instead.

    `plain`: the answer is text, as metrics are. `once`: what does not change within a second is not asked
    twice. `generates`: the server computes a token for its answer, so it is asked only when that is wanted.
    `pictured` is false where a bundle keeps the answer and the picture is made without it.
    """

    document: str
    url: str
    plain: bool = False
    once: bool = False
    older: str = ""
    generates: bool = False
    pictured: bool = True
    deadline: float = DEADLINE

    @property
    def path(self) -> str:
        """The URL without server and query, for people."""
        return "/" + self.url.partition("://")[2].partition("/")[2].partition("?")[0]

    def file(self, sample: int) -> str:
        """Its file's name in the party's folder; a sample counts from 1."""
        if self.document == "health":
            return "health"  # a status without words
        ending = "prom" if self.plain else "json"
        return f"{self.document}.{ending}" if self.once else f"{self.document}.{sample}.{ending}"


Answers = Mapping[str, Answer]  # document -> answer
UNASKED = Answer(Reach.BAD_ANSWER, None, "it was not asked", 0.0)


def answered(answers: Answers) -> bool:
    """Whether the server gave any HTTP answer at all."""
    return any(a.reach in (Reach.OK, Reach.BAD_ANSWER) and a is not UNASKED for a in answers.values())


async def ask(
    client: httpx.AsyncClient,
    endpoints: Sequence[Endpoint],
    deadline: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Answer]:
    """Every endpoint at once, each within its own deadline or within `deadline` where that is less."""
    asked = [_one(client, e, min(e.deadline, deadline or e.deadline), headers) for e in endpoints]
    return dict(zip((e.document for e in endpoints), await asyncio.gather(*asked), strict=True))


async def _one(
    client: httpx.AsyncClient, endpoint: Endpoint, deadline: float, headers: Mapping[str, str] | None
) -> Answer:
    answer = await fetch(client, endpoint.url, deadline, endpoint.plain, headers)
    if answer.detail.startswith("HTTP 404") and endpoint.older:
        return await fetch(client, endpoint.older, deadline, endpoint.plain, headers)
    return answer
