"""What pdctl itself collected, read back: members, samples, units, processes and hosts; pure.

A live diagnose reads its own documents by this too, so that a saved bundle gives the same verdict.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from pdctl.adapters import kinds
from pdctl.adapters.picture import Pair, Reach, Sample
from pdctl.adapters.probe import Answer
from pdctl.adapters.probe import read as read_answer
from pdctl.adapters.stamps import written
from pdctl.adapters.traces import Traces
from pdctl.bundle.documents import Documents
from pdctl.bundle.manifest import (
    FLEET,
    MANIFEST,
    Asked,
    Declared,
    FleetPage,
    Manifest,
    read_fleet,
    read_manifest,
)
from pdctl.bundle.told import PartyTable
from pdctl.diagnose.facts import HostView, Member
from pdctl.facts import clock, machine, ports, reach
from pdctl.facts.ask import Answers
from pdctl.facts.collect import Gathered, UnitFacts
from pdctl.facts.missing import Missing, known
from pdctl.facts.unit import Unit
from pdctl.units.spec import UnitStatus

ANSWERS, UNITS = "answers.json", "units.json"
_LOST = Missing("the bundle has no answer of its host")
_RUNNING = ("running", "starting", "stopping", "orphaned")
# Lives that nobody asked for: what the life before them wrote tells why.
UNASKED = ("supervisor", "")
_ASKED = (None, 0, 143, -15)  # how a life ends that somebody ended
_STARTING = re.compile(r"^Starting .*\bpdctl ")  # systemd, before each life
_UP = re.compile(
    r"^Started .*\bpdctl | is up after [\d.]+ s$|ired up and ready to roll|pplication startup complete"
)
_LONG = 300.0


@dataclass(frozen=True)
class Collected:
    documents: Documents
    manifest: Manifest
    page: FleetPage

    def declared(self, name: str) -> Declared | None:
        return next((m for m in self.page.members if m.name == name), None)

    @cached_property
    def _gathered(self) -> dict[str, Gathered]:
        """Host -> what it said."""
        return {host: self._host(host) for host in self.page.hosts}

    def _host(self, host: str) -> Gathered:
        failed = [a.detail for a in self.manifest.asked if a.of == host and a.outcome != Reach.OK]
        missing = Missing(failed[0]) if failed else _LOST
        said, units = (self._json(f"hosts/{host}/{file}") for file in (ANSWERS, UNITS))
        answers = Answers({}, {}, 0.0, 0.0)
        if said is not None:
            answers = Answers(said["facts"], said["missing"], said["sent"], said["seconds"])
        else:
            subjects = ("clock", "disk", "ports", "reach", "processes")
            answers = Answers({}, dict.fromkeys(subjects, missing.reason), 0.0, 0.0)
        if units is None or "missing" in units:
            return Gathered(Missing(units["missing"]) if units else missing, answers)
        return Gathered({name: UnitStatus(**row) for name, row in units["units"].items()}, answers)

    def _json(self, path: str) -> Any:
        text = self.documents.texts.get(path)
        try:
            return None if text is None else json.loads(text)
        except ValueError:
            return None

    @cached_property
    def _units(self) -> dict[str, UnitFacts]:
        found: dict[str, UnitFacts] = {}
        for host, gathered in self._gathered.items():
            found |= gathered.units([m.name for m in self.page.members if m.host == host])
        return found

    def unit(self, name: str) -> UnitFacts:
        return self._units.get(name, UnitFacts(_LOST, _LOST))

    def member(self, declared: Declared) -> Member:
        server, found = declared.server, self.unit(declared.name)
        expected = declared.expected
        return Member(
            name=server.name,
            role=server.role,
            cell=declared.cell,
            host=declared.host,
            url=server.url,
            bootstrap=server.bootstrap,
            expected=expected if isinstance(expected, Missing) else dict(expected),
            unit=found.unit,
            process=found.process,
            places=declared.places,
        )

    def pair(self, declared: Declared, seen: Traces) -> Pair[Any]:
        """Both samples; a party that was not asked again has the first one twice."""
        asked = [a for a in self.manifest.asked if a.of == declared.name]
        first = self._sample(declared, [a for a in asked if a.sample != 2], self.manifest.samples[0], seen)
        again = {a.name: a for a in asked if a.sample == 2}
        if not again:
            return Pair(first, first, 0.0)
        newest = [again.get(a.name, a) for a in asked if a.sample != 2]
        second = self._sample(declared, newest, self.manifest.samples[1], seen)
        return Pair(first, second, self.manifest.gap)

    def _sample(self, declared: Declared, asked: list[Asked], at: float, seen: Traces) -> Sample[Any]:
        answers = {a.name: self._answer(a) for a in asked}
        return kinds.sample(declared.server, answers, at, seen.settings, seen.environ)

    def _answer(self, asked: Asked) -> Answer:
        if asked.outcome != Reach.OK:
            reached = Reach.BAD_ANSWER if asked.outcome == "failed" else Reach(asked.outcome)
            return Answer(reached, None, asked.detail, asked.seconds)
        text = self.documents.texts.get(asked.document)
        if text is None:
            why = "its document is not in the bundle"
            return Answer(Reach.BAD_ANSWER, None, why, asked.seconds)
        return read_answer(text, not asked.document.endswith(".json"), asked.seconds)

    def table(self, declared: Declared, pair: Pair[Any] | None = None) -> PartyTable:
        """What a person would tell of it, from its unit and how it answered."""
        unit = self.unit(declared.name).unit
        table = PartyTable(kind=declared.server.kind, cell=declared.cell, host=declared.host)
        if known(unit):
            ended = unit.exit if unit.state not in _RUNNING else None
            table.exit, table.restarts, table.started = ended, unit.restarts, unit.started_at
        return table

    def host(self, name: str, view: HostView) -> HostView:
        """`view`, which is what the host's tools printed, with what it was asked."""
        answers = self._gathered[name].answers
        return replace(
            view,
            address=self.page.hosts[name],
            clock=clock.parse(answers),
            disk=machine.room(answers.of("disk")),
            ports=ports.parse(answers.of("ports")),
            reach=reach.parse(answers.of("reach")),
        )

    def present(self, name: str, text: str) -> str:
        """A log without the lines of lives before the present one, which are left as empty lines. Of a unit
        that ended, or came back unasked, all lives since somebody asked for one are present, but none from
        before a life that was up and lasted. Where somebody ended it, only the last is.
        """
        declared = self.declared(name)
        unit = self.unit(name).unit if declared else _LOST
        if declared is None or not known(unit):
            return text
        if unit.state not in _RUNNING or (unit.restarts and unit.started_by in UNASKED):
            return _series(text, unit, self.manifest.at)
        zone = self._gathered[declared.host].answers.of("zone")
        return _from(text, unit, self.manifest.at, min(0, zone if isinstance(zone, int) else 0))


def _series(text: str, unit: Unit, at: float) -> str:
    """From the mark of the life that was asked for; the whole text where nothing marked one."""
    lines = text.split("\n")
    mark = f"[keeper] {unit.name} started as pid "
    begins = [n for n, line in enumerate(lines) if mark in line or _STARTING.search(line)]
    asked = unit.state == "stopped" and unit.exit in _ASKED
    count = 1 if asked else unit.restarts + 1
    begin = begins[-count] if len(begins) >= count else 0
    lives = [n for n in begins if n >= begin]
    for first, end in pairwise([*lives, len(lines)]):
        runs_since = unit.started_at if end == len(lines) and unit.state in _RUNNING else None
        if _lasted(lines[first:end], at, runs_since):
            begin = first
    return "\n" * begin + "\n".join(lines[begin:])


def _lasted(life: list[str], at: float, runs_since: float | None) -> bool:
    """Whether a life was up for long: what ended the one before it was over then."""
    up = next((n for n, line in enumerate(life) if _UP.search(line)), None)
    if up is None:
        return False
    if runs_since is not None:
        return at - runs_since >= _LONG
    stamps = [stamp for line in life[up:] if (stamp := written(line, at)) is not None]
    return bool(stamps) and stamps[-1] - stamps[0] >= _LONG


def _from(text: str, unit: Unit, near: float, zone: int) -> str:
    """From the keeper's mark of this life, else from the first line written in it. `zone` is seconds."""
    lines = text.split("\n")
    mark = f"[keeper] {unit.name} started as pid {unit.pid}"
    begin = next((n for n in range(len(lines) - 1, -1, -1) if lines[n].endswith(mark)), None)
    if begin is None and unit.started_at is not None:
        began, last = unit.started_at - 2.0 + zone, None
        for number, line in enumerate(lines):
            stamp = written(line, near)
            if stamp is not None and stamp < began:
                last = number
            elif stamp is not None:
                break
        begin = 0 if last is None else last + 1
    return "\n" * (begin or 0) + "\n".join(lines[begin or 0 :])


def collected(documents: Documents) -> Collected | None:
    """None for a bundle that a person put together. ConfigError when pdctl's own pages are damaged."""
    texts = documents.texts
    if MANIFEST not in texts or FLEET not in texts:
        return None
    return Collected(documents, read_manifest(texts[MANIFEST]), read_fleet(texts[FLEET]))
