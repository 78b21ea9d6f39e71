"""Ask one engine or router twice; its answers as documents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from pdctl.adapters.endpoints import Endpoint, Server, answered, ask
from pdctl.adapters.kinds import endpoints
from pdctl.adapters.picture import Reach
from pdctl.adapters.probe import Answer
from pdctl.bundle.manifest import Asked, Skipped

TOKEN = "it computes a token; --probes asks it"


@dataclass
class Collection:
    """What has been collected so far: path -> text, and what the manifest says of it."""

    texts: dict[str, str] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, other: Collection) -> None:
        self.texts |= other.texts
        self.asked += other.asked
        self.skipped += other.skipped


async def ask_party(
    client: httpx.AsyncClient, server: Server, gap: float, probes: bool, headers: Mapping[str, str]
) -> Collection:
    """Two samples whose answers are `gap` seconds apart, however late the first ones came; a first sample
    that nobody answered is not paid for twice.
    """
    found = Collection()
    wanted = [e for e in endpoints(server) if probes or not e.generates]
    found.skipped += [
        Skipped(server.name, e.document, TOKEN) for e in endpoints(server) if e.generates and not probes
    ]
    first = await _sample(client, server, wanted, 1, headers, found)
    if not answered(first) and all(a.reach is not Reach.REFUSED for a in first.values()):
        return found
    # What was answered at once is already old when the sample had to wait for another endpoint.
    slowest = max(a.seconds for a in first.values())
    age = slowest - max((a.seconds for a in first.values() if a.reach is Reach.OK), default=slowest)
    await asyncio.sleep(max(0.0, gap - age))
    await _sample(client, server, [e for e in wanted if not e.once], 2, headers, found)
    return found


async def _sample(
    client: httpx.AsyncClient,
    server: Server,
    wanted: Sequence[Endpoint],
    number: int,
    headers: Mapping[str, str],
    into: Collection,
) -> dict[str, Answer]:
    answers = await ask(client, wanted, headers=headers)
    # Not when it was about to be asked: a busy machine may come to it a second later.
    at = time.time() - max((a.seconds for a in answers.values()), default=0.0)
    for endpoint in wanted:
        answer = answers[endpoint.document]
        document = f"{server.name}/{endpoint.file(number)}" if answer.reach is Reach.OK else ""
        if document:
            into.texts[document] = answer.text
        into.asked.append(
            Asked(
                of=server.name,
                name=endpoint.document,
                where=endpoint.url,
                sample=0 if endpoint.once else number,
                at=round(at, 3),
                seconds=round(answer.seconds, 4),
                bytes=len(answer.text.encode()),
                outcome=answer.reach.value,
                detail=answer.detail,
                document=document,
            )
        )
    return answers
