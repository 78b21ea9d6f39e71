"""A ward on a virtual clock: looks and verdicts are given, decisions are taken, no time passes by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pdctl.adapters.picture import Peer, Reach
from pdctl.supervisor.case import Case
from pdctl.supervisor.decide import Decision
from pdctl.supervisor.incidents import Incidents
from pdctl.supervisor.judge import Seen
from pdctl.supervisor.observation import EngineLook, HostLook, Observation, RouterLook
from pdctl.supervisor.policy import PolicyFile, merged, shipped
from pdctl.supervisor.states import State
from pdctl.supervisor.ward import Roster, Ward

NOON = 1_800_000_000.0  # a Friday, 08:00 UTC
EVERY = 5.0


@dataclass
class Virtual:
    """`now` and `wall` go on by `pass_`; `jump` sets the machine's time alone."""

    mono: float = 1000.0
    date: float = NOON

    def now(self) -> float:
        return self.mono

    def wall(self) -> float:
        return self.date

    def pass_(self, seconds: float) -> None:
        self.mono += seconds
        self.date += seconds

    def jump(self, seconds: float) -> None:
        self.date += seconds


def policy(**over: Any) -> PolicyFile:
    """The shipped one with what is to be otherwise, as nested tables."""
    return PolicyFile.model_validate(merged(shipped(), over))


def peer(of: str, stale: bool = False, ok: int = 5) -> Peer:
    return Peer(of, "i", "127.0.0.1:1", not stale, 9.0, 0.1, 1.0, ok, 0, 0, stale, None)


def engine(name: str, cell: str = "a", **more: Any) -> EngineLook:
    role = name.partition("-")[0]
    plain = EngineLook(name, cell, role, "local", status="ready", ready=True, incarnation="i")
    return replace(plain, **more)


def finding(code: str = "PD501", cell: str = "a", **more: Any) -> Seen:
    names = frozenset({f"prefill-{cell}", f"decode-{cell}"})
    return Seen(
        code, more.pop("subject", f"prefill-{cell} -> decode-{cell}"), cell, names, f"{code} it is", **more
    )


@dataclass
class Bed:
    """Cells a and b of a pair each, on one host of this machine; `cells` names fewer or others."""

    path: Path
    policy: PolicyFile = field(default_factory=policy)
    cells: Sequence[str] = ("a", "b")
    pairs: frozenset[str] = frozenset()
    relinks: frozenset[str] = frozenset()
    more: Mapping[str, Sequence[str]] = field(default_factory=dict)  # cell -> engines beside the pair
    clock: Virtual = field(default_factory=Virtual)

    def __post_init__(self) -> None:
        self.store = Incidents(self.path / "supervisor.db")
        self.ward = self.born()

    def born(self) -> Ward:
        """A supervisor that begins now, over the same file."""
        self.names = {c: (f"prefill-{c}", f"decode-{c}", *self.more.get(c, ())) for c in self.cells}
        roles = {name: name.partition("-")[0] for names in self.names.values() for name in names}
        known = Roster(self.names, roles, self.pairs, self.relinks)
        self.ward = Ward(known, self.policy, self.clock, self.store)
        return self.ward

    def state(self, cell: str = "a") -> State:
        return self.ward.cases[cell].state

    def seen(self, *ill: str, **of: Any) -> Observation:
        """A look in which the cells of `ill` look suspicious. `of`: engine name with _ -> fields."""
        engines = []
        for cell, names in self.names.items():
            for name in names:
                shown = engine(name, cell, peers=(peer("x", stale=cell in ill),))
                engines.append(replace(shown, **of.get(name.replace("-", "_"), {})))
        t = self.clock
        hosts = of.get("hosts", (HostLook("local", True, t.wall(), t.now(), local=True),))
        front = of.get("router", RouterLook("router", "local", admission="open", size=0))
        return Observation("test", 1, t.wall(), t.now(), tuple(engines), front, hosts)

    def look(
        self, *found: Seen, held: str = "", after: float = EVERY, **of: Any
    ) -> list[tuple[Case, Decision]]:
        """One turn of the loop, `after` seconds later: what is due."""
        self.clock.pass_(after)
        ill = {f.cell for f in found}
        wanted = self.ward.look(self.seen(*ill, **of), held)
        for cell in wanted:
            self.ward.judged(cell, [f for f in found if f.cell == cell])
        return self.ward.decide()

    def until(self, *found: Seen, seconds: float = 600.0, **of: Any) -> tuple[Case, Decision]:
        """Turns until something is due."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            if due := self.look(*found, **of):
                return due[0]
        raise AssertionError(f"nothing was due in {seconds:g} s; {self.state()}")

    def quiet(self, *found: Seen, seconds: float, **of: Any) -> None:
        """Turns in which nothing may be due."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            due = self.look(*found, **of)
            assert not due, due[0][1]

    def act(self, case: Case, decision: Decision, outcome: str = "done", seconds: float = 20.0) -> None:
        """The act that was due, and how it ended."""
        id = self.ward.began(case, decision)
        self.clock.pass_(seconds)
        self.ward.ended(case, id, decision, outcome, "so it was")

    def told(self) -> list[str]:
        """Kinds of the notices so far; they are taken."""
        notices, self.ward.notices = self.ward.notices, []
        return [n.kind for n in notices]


SILENT: dict[str, Any] = {"reach": Reach.TIMED_OUT, "detail": "silent", "ready": False, "peers": ()}
