"""One fan-out over the fleet, as the documents of a bundle.

Works while everything is broken: every probe has its own deadline, and what it did not get is a fact too.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata

from pdctl.adapters.picture import Reach
from pdctl.bundle.documents import Documents
from pdctl.bundle.manifest import FLEET, MANIFEST, Manifest
from pdctl.bundle.scrub import scrub
from pdctl.diagnose.facts import HalfWay, Left
from pdctl.errors import PdctlError
from pdctl.facts.missing import Missing
from pdctl.fleet.model import Engine, Router
from pdctl.fleet.profile import unit_secrets
from pdctl.fleet.tokens import read_token
from pdctl.flows.changing import fleet_lock
from pdctl.flows.collect import hosts
from pdctl.flows.collect.parties import Collection, ask_party
from pdctl.flows.collect.servers import page, server
from pdctl.flows.context import Context
from pdctl.flows.foreign import authorization
from pdctl.flows.recovery.record import read
from pdctl.remote.fanout import begin
from pdctl.remote.journal_read import UNFINISHED, list_runs

LOCK_DEADLINE = 5.0
# Two samples this far apart let a rule see steps, tokens and bytes move.
GAP = 1.0
SINCE = 1800.0


@dataclass(frozen=True)
class Wanted:
    """`since`: logs of the last that many seconds. `probes` allows questions that make an engine compute a
    token; `stacks` has py-spy print every unit's threads.
    """

    since: float = SINCE
    probes: bool = False
    stacks: bool = False


USUAL = Wanted()


def collect(ctx: Context, gap: float = GAP, wanted: Wanted = USUAL) -> Documents:
    """Everything of the fleet. Nothing is raised for what does not answer."""
    return asyncio.run(_collect(ctx, gap, wanted))


async def _collect(ctx: Context, gap: float, wanted: Wanted) -> Documents:
    began = time.monotonic()
    fleet = ctx.fleet
    router = () if fleet.router.kind == "none" else (fleet.router,)
    units = (*fleet.engines(), *router)
    started = time.time()
    async with ctx.async_client(keep=0) as client:
        asking = [ask_party(client, server(unit), gap, wanted.probes, headers(ctx, unit)) for unit in units]
        looking = [hosts.ask_one(ctx, host, wanted.since, wanted.stacks) for host in fleet.hosts]
        holding = asyncio.create_task(_run(ctx))
        found = await asyncio.gather(*asking, *looking)
        run = await holding
    whole = Collection()
    for each in found:
        whole.add(each)
    manifest = Manifest(
        pdctl=metadata.version("pdctl"),
        samples=_samples(whole, started, gap),
        seconds=round(time.monotonic() - began, 3),
        since=wanted.since,
        run=run,
        half_way=_half_way(ctx),
        left=_left(ctx),
        asked=tuple(whole.asked),
        skipped=tuple(whole.skipped),
    )
    known = _secrets(ctx)
    texts = {path: scrub(text, known) for path, text in whole.texts.items()}
    texts |= {MANIFEST: manifest.to_json(), FLEET: page(fleet).to_json()}
    return Documents(fleet.name, texts)


def headers(ctx: Context, unit: Engine | Router) -> dict[str, str]:
    """The key that a server of another kind was started with; without it, its answer says what is wrong."""
    try:
        return authorization(ctx, [unit])
    except PdctlError:
        return {}


def _secrets(ctx: Context) -> list[str]:
    """Every secret that pdctl knows of this fleet: none of them may be in a document."""
    found: list[str] = []
    # A secret that cannot be read here was not given from here either.
    with suppress(PdctlError):
        found.append(read_token(ctx.fleet))
    for unit in ctx.fleet.units():
        with suppress(PdctlError):
            found += [value for value, _ in unit_secrets(ctx.fleet, unit).values()]
    return sorted(found, key=len, reverse=True)


def _samples(whole: Collection, started: float, gap: float) -> tuple[float, float]:
    """When the samples were begun; without a second one, when it would have been."""
    first = [a.at for a in whole.asked if a.sample == 1]
    second = [a.at for a in whole.asked if a.sample == 2 and a.outcome == Reach.OK]
    begin = min(first, default=round(started, 3))
    return begin, max(second, default=round(begin + gap, 3))


def _half_way(ctx: Context) -> HalfWay | None:
    """The newest run of this machine's journal, when it stops and starts engines and was not ended."""
    try:
        runs = [r for r in list_runs(ctx.fleet.paths.journal, 20) if not r.command.startswith("abort ")]
    except (PdctlError, OSError, sqlite3.Error):
        return None  # a journal that cannot be read is no reason not to look at the fleet
    if not runs or runs[0].state not in UNFINISHED:
        return None
    last = runs[0]
    if last.again[:2] == ("restart", "--co"):
        return HalfWay(last.id, last.again[2], last.state, last.command)
    whole = last.again[:1] in (("deploy",), ("rollback",))
    return HalfWay(last.id, "", last.state, last.command) if whole else None


def _left(ctx: Context) -> Left | None:
    """What the recovery record says, and whose it is."""
    try:
        record = read(ctx.fleet)
        runs = list_runs(ctx.fleet.paths.journal, 20) if record is not None else []
    except (PdctlError, OSError, sqlite3.Error):
        return None  # as above; who restores it is told what is wrong with it
    if record is None:
        return None
    timeouts = {unit: {name: now for name, (_, now) in row.items()} for unit, row in record.timeouts.items()}
    faults = {f.engine: [g.name for g in record.faults if g.engine == f.engine] for f in record.faults}
    owner = next((r for r in runs if r.started <= record.at), None)
    if owner is None or owner.state not in UNFINISHED:
        return Left("", "", "", timeouts, faults)
    return Left(owner.id, owner.state, owner.command, timeouts, faults)


async def _run(ctx: Context) -> str | Missing:
    """Who holds the fleet's lock and lives."""
    try:
        looking = asyncio.wrap_future(begin(lambda: fleet_lock(ctx).look()))
        holder = await asyncio.wait_for(looking, LOCK_DEADLINE)
    except TimeoutError:
        return Missing(f"the lock's host did not answer within {LOCK_DEADLINE:g} s")
    except PdctlError as error:
        return Missing(error.message)
    return holder.words() if holder is not None and not holder.stale else ""
