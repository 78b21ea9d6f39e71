"""A bundle's documents as Facts, whether pdctl collected them or a person put them together; pure."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from pdctl.adapters.picture import Pair, Reach, Sample
from pdctl.adapters.traces import Traces
from pdctl.bundle import hosts as of_hosts
from pdctl.bundle.documents import Documents
from pdctl.bundle.layout import ALONE, HERE, What, place, role_of
from pdctl.bundle.parties import Filed, traces
from pdctl.bundle.told import PartyTable, Told, read_told
from pdctl.diagnose.facts import Change, EngineView, Facts, Member, OtherView, RouterView, Tally
from pdctl.facts.missing import Missing
from pdctl.facts.unit import Unit

_UNSEEN = Missing("the bundle does not show it")
_STATES = {"running": "running", "ended": "failed", "frozen": "running", "starting": "starting"}
_REACH = {"ok": Reach.OK, "refused": Reach.REFUSED, "timed out": Reach.TIMED_OUT}


def facts_of(documents: Documents, now: float) -> Facts:
    """ConfigError for a bundle.toml with problems. `now` is for a bundle that does not say its time."""
    told = Told()
    if "bundle.toml" in documents.texts:
        told = read_told(documents.texts["bundle.toml"], Path(documents.name) / "bundle.toml")
    at = told.at if told.at is not None else now
    filed, hosts = _filed(documents, told)
    names = [*told.parties, *(n for n in filed if n not in told.parties)]
    tables = {name: told.parties.get(name, PartyTable()) for name in names}
    roles = {name: tables[name].role or role_of(name) for name in names}
    views: dict[str, tuple[Member, Traces]] = {}
    for name in names:
        seen = traces(name, roles[name], filed[name], tables[name], at, told.gap)
        views[name] = (_member(name, roles[name], tables[name], seen), seen)
    routers = [n for n in names if roles[n] == "router"]
    return Facts(
        fleet=told.source or Path(documents.name).name,
        at=at,
        drill=False,
        engines=tuple(
            EngineView(*_with_pair(views[n], tables[n]))
            for n in names
            if roles[n] in ("prefill", "decode", "both")
        ),
        router=RouterView(*_with_pair(views[routers[0]], tables[routers[0]]))
        if routers
        else Missing("the bundle shows no router"),
        hosts=tuple(of_hosts.view(name, hosts[name], told.hosts.get(name), at) for name in hosts),
        run=_UNSEEN,
        others=tuple(OtherView(*views[n]) for n in names if roles[n] == "other" or n in routers[1:]),
        tallies=tuple(Tally(e.prefill, e.decode, e.ok, e.failed) for e in told.edges),
        changes=tuple(Change(c.what, c.party, c.at, c.name, c.value, c.cured) for c in told.changes),
    )


def _filed(
    documents: Documents, told: Told
) -> tuple[defaultdict[str, Filed], defaultdict[str, dict[str, str]]]:
    """Party -> its documents, host -> path -> text. A host's document in a party's folder is its host's."""
    parties: defaultdict[str, Filed] = defaultdict(Filed)
    hosts: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name in told.hosts:
        hosts[name] = {}
    for path in sorted(documents.texts):
        where = place(path)
        if where is None:
            continue
        text = documents.texts[path]
        if where.what in (What.KERNEL, What.TOOL):
            table = told.parties.get(where.party)
            own = not path.startswith("hosts/")
            host = (table.host if table and table.host else where.party) if own else where.party
            hosts[host or HERE][path] = text
        else:
            alone = next(iter(told.parties), ALONE) if len(told.parties) == 1 else ALONE
            parties[where.party or alone].add(path, where, text)
    return parties, hosts


def _member(name: str, role: str, table: PartyTable, seen: Traces) -> Member:
    unit: Unit | Missing = _UNSEEN
    state = table.state or ("ended" if table.exit is not None else "")
    if state:
        unit = Unit(name, _STATES[state], True, None, table.exit, table.restarts or 0, None, table.started)
    return Member(
        name=name,
        role=role,
        cell=table.cell,
        host=table.host or HERE,
        url=table.url,
        bootstrap=None,
        expected=_UNSEEN,
        unit=unit,
        process=_UNSEEN,
    )


def _with_pair(view: tuple[Member, Traces], table: PartyTable) -> tuple[Member, Pair[Any], Traces]:
    member, seen = view
    reach = _REACH.get(table.health, Reach.BAD_ANSWER if table.health else Reach.OK)
    sample: Sample[Any] = Sample(reach, _UNSEEN, table.health)
    return member, Pair(sample, sample, 0.0), seen
