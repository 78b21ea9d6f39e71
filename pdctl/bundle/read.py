"""A bundle's documents as Facts, whether pdctl collected them or a person put them together; pure."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from pdctl.adapters.picture import Engine, Pair, Reach, Sample
from pdctl.adapters.signs import TABLE
from pdctl.adapters.stamps import written
from pdctl.adapters.traces import Event, Traces
from pdctl.bundle import hosts as of_hosts
from pdctl.bundle.collected import ANSWERS, UNITS, Collected, collected
from pdctl.bundle.documents import Documents
from pdctl.bundle.layout import ALONE, HERE, What, age_order, beside, nameless, place, role_of
from pdctl.bundle.parties import Filed, traces
from pdctl.bundle.told import PartyTable, Told, read_told
from pdctl.diagnose.facts import Change, EngineView, Facts, Member, OtherView, RouterView, Tally
from pdctl.errors import ConfigError
from pdctl.facts.missing import Missing
from pdctl.facts.unit import Unit

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # what a server puts around words for a terminal
_END = 200  # lines of a log in which its newest stamp is looked for
_UNSEEN = Missing("the bundle does not show it")
_STATES = {"running": "running", "ended": "failed", "frozen": "running", "starting": "starting"}
_REACH = {"ok": Reach.OK, "refused": Reach.REFUSED, "timed out": Reach.TIMED_OUT}


def facts_of(documents: Documents, now: float) -> Facts:
    """ConfigError for a bundle.toml with problems. `now` is for a bundle that says no time at all."""
    told = Told()
    if "bundle.toml" in documents.texts:
        told = read_told(documents.texts["bundle.toml"], Path(documents.name) / "bundle.toml")
    kept = collected(documents)
    if kept is not None:
        return _of_collected(kept, told)
    at = told.at if told.at is not None else _newest(documents, now)
    filed, hosts = _filed(documents, told)
    names = [*told.parties, *(n for n in filed if n not in told.parties)]
    if not (names or hosts or told.notes):
        raise ConfigError(
            "empty_bundle",
            f"{documents.name} shows no engine, router or host: there is nothing to judge.",
            "docs/bundle.md says what can be in it.",
        )
    tables = {name: told.parties.get(name, PartyTable()) for name in names}
    roles = {name: tables[name].role or role_of(name) for name in names}
    views: dict[str, tuple[Member, Traces]] = {}
    # Where nobody says where anybody runs, it is on the only host there is.
    only = next(iter(hosts)) if len(hosts) == 1 and not any(t.host for t in tables.values()) else HERE
    for name in names:
        seen = traces(name, roles[name], filed[name], tables[name], at, told.gap)
        views[name] = (_member(name, roles[name], tables[name], seen, only), seen)
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
        said=_said(told.notes, at),
        unread=_unread(documents),
    )


def _unread(documents: Documents) -> tuple[tuple[str, str], ...]:
    """(document, why) of what may say something and was not read."""
    unknown = {path: "its name does not say what it is" for path in documents.texts if nameless(path)}
    unknown |= {path: why for path, text in documents.texts.items() if (why := _no_json(path, text))}
    foreign = {path: why for path, why in documents.unread.items() if not beside(path)}
    return tuple(sorted({**unknown, **foreign}.items()))


def _no_json(path: str, text: str) -> str:
    where = place(path)
    if where is None or where.what is not What.JSON:
        return ""
    try:
        json.loads(text)
    except ValueError as error:
        return f"is no JSON: {error}"
    return ""


def _newest(documents: Documents, now: float) -> float:
    """The newest stamp at the end of its logs, `now` where none has any: what they say was news then."""
    ends = [
        text.splitlines()[-_END:]
        for path, text in documents.texts.items()
        if (where := place(path)) is not None and where.what in (What.LOG, What.KERNEL)
    ]
    stamps = [at for lines in ends for line in lines if (at := written(line, now)) is not None]
    return max((at for at in stamps if at <= now), default=now)


def _said(notes: str, at: float) -> tuple[Event, ...]:
    """What a person's notes say of answers: nobody else can tell that they are wrong."""
    events = TABLE.scan(notes, "notes", "bundle.toml", at)
    return tuple(e for e in events if e.sign.startswith("answer."))


def _of_collected(kept: Collected, told: Told) -> Facts:
    """Of what pdctl collected; of bundle.toml, which may lie beside it, what pdctl cannot know."""
    at, gap, page = kept.manifest.at, kept.manifest.gap, kept.page
    filed, hosts = _filed(kept.documents, told, kept)
    engines: list[EngineView] = []
    router: RouterView | Missing = Missing("the fleet file names no router")
    for declared in page.members:
        name, role = declared.name, declared.server.role
        seen = traces(name, role, filed[name], kept.table(declared), at, gap)
        pair = kept.pair(declared, seen)
        seen = replace(seen, health=_health(pair.second), version=seen.version or _version(pair.second))
        if role == "router":
            router = RouterView(kept.member(declared), pair, seen)
        else:
            engines.append(EngineView(kept.member(declared), pair, seen))
    others = [n for n, table in told.parties.items() if kept.declared(n) is None and table.role == "other"]
    seen_others = {n: traces(n, "other", filed[n], told.parties[n], at, gap) for n in others}
    return Facts(
        fleet=page.fleet,
        at=at,
        drill=page.drill,
        engines=tuple(engines),
        router=router,
        hosts=tuple(kept.host(h, of_hosts.view(h, hosts[h], told.hosts.get(h), at)) for h in page.hosts),
        run=kept.manifest.run,
        half_way=kept.manifest.half_way,
        left=kept.manifest.left,
        suppressions=page.suppressions,
        others=tuple(OtherView(_member(n, "other", told.parties[n], t), t) for n, t in seen_others.items()),
        tallies=tuple(Tally(e.prefill, e.decode, e.ok, e.failed) for e in told.edges),
        changes=tuple(Change(c.what, c.party, c.at, c.name, c.value, c.cured) for c in told.changes),
    )


def _health(sample: Sample[Any]) -> str:
    if sample.reach is Reach.OK and isinstance(sample.picture, Engine) and not sample.picture.ready:
        return "not ready: " + "; ".join(sample.picture.not_ready)
    return sample.reach.value


def _version(sample: Sample[Any]) -> str:
    """What an engine of another kind calls itself."""
    picture = sample.picture
    return picture.versions.get(picture.kind, "") if isinstance(picture, Engine) else ""


def _filed(
    documents: Documents, told: Told, kept: Collected | None = None
) -> tuple[defaultdict[str, Filed], defaultdict[str, dict[str, str]]]:
    """Party -> its documents, host -> path -> text. A host's document in a party's folder is its host's."""
    parties: defaultdict[str, Filed] = defaultdict(Filed)
    hosts: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name in told.hosts:
        hosts[name] = {}
    alone = _alone(documents, told)
    for path in sorted(documents.texts, key=age_order):
        where = place(path)
        if where is None:
            continue
        text = documents.texts[path]
        if where.what in (What.KERNEL, What.TOOL):
            table = told.parties.get(where.party)
            own = not path.startswith("hosts/")
            host = (table.host if table and table.host else where.party) if own else where.party
            if kept is None or PurePosixPath(path).name not in (ANSWERS, UNITS):
                hosts[host or HERE][path] = text
        else:
            if where.what is What.LOG:
                text = _COLOUR.sub("", text) if "\x1b" in text else text
                text = kept.present(where.party, text) if kept is not None else text
            parties[where.party or alone].add(path, where, text)
    return parties, hosts


def _alone(documents: Documents, told: Told) -> str:
    """Whose documents without a name are: the only party's that anybody names."""
    places = [where for path in documents.texts if (where := place(path)) is not None]
    named = {w.party for w in places if w.party and w.what not in (What.KERNEL, What.TOOL)}
    names = list(told.parties) or sorted(named)
    return names[0] if len(names) == 1 else ALONE


def _member(name: str, role: str, table: PartyTable, seen: Traces, only: str = HERE) -> Member:
    unit: Unit | Missing = _UNSEEN
    state = table.state or ("ended" if table.exit is not None else "")
    if state:
        unit = Unit(name, _STATES[state], True, None, table.exit, table.restarts or 0, None, table.started)
    return Member(
        name=name,
        role=role,
        cell=table.cell,
        host=table.host or only,
        url=table.url,
        bootstrap=None,
        expected=_UNSEEN,
        unit=unit,
        process=_UNSEEN,
    )


def _with_pair(view: tuple[Member, Traces], table: PartyTable) -> tuple[Member, Pair[Any], Traces]:
    member, seen = view
    reach = _REACH.get(table.health, Reach.BAD_ANSWER if table.health else Reach.NOT_ASKED)
    sample: Sample[Any] = Sample(reach, _UNSEEN, table.health)
    return member, Pair(sample, sample, 0.0), seen
