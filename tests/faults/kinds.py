"""Kinds of faults on processes and transfers: how each is injected, seen and ended."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import Literal

from tests.faults.bed import QUICK, Bed
from tests.faults.load import wait

Whom = Literal["parent", "group", "rank 0", "rank 1"]


def pids_of(bed: Bed, name: str, whom: Whom) -> list[int]:
    process = bed[name]
    match whom:
        case "parent":
            return [process.pid]
        case "group":
            return [process.pid, *process.ranks()]
    return [process.ranks()[int(whom[-1])]]


def process_state(pid: int) -> str:
    """The letter of /proc/PID/stat; empty when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def gone(pid: int) -> bool:
    return process_state(pid) in ("", "Z", "X")


def ended(bed: Bed, name: str, group: list[int], within: float = 15.0) -> None:
    """The engine has ended as one unit: parent and every rank."""
    popen = bed[name].popen
    assert popen is not None
    wait(lambda: popen.poll() is not None, within, f"{name} to end as a unit")
    wait(lambda: all(gone(p) for p in group), 10.0, f"no rank of {name} to be left")


def told(bed: Bed, name: str, why: str, code: int) -> None:
    """The engine's last words name the cause, not what its other ranks made of it, and so does its code."""
    popen, last = bed[name].popen, bed[name].tail(3)
    assert popen is not None and popen.returncode == code, f"exit {popen and popen.returncode}: {last}"
    assert why in last and "Traceback" not in last, last


@dataclass
class Kill:
    """SIGKILL. `aim` is the pid that is really signalled: another than the target is a wrong target."""

    name: str
    whom: Whom
    how: signal.Signals = signal.SIGKILL
    aim: int | None = None
    target: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)

    def inject(self, bed: Bed) -> None:
        self.target = pids_of(bed, self.name, self.whom)
        self.group = [bed[self.name].pid] if self.name == "router" else pids_of(bed, self.name, "group")
        for pid in self.target if self.aim is None else [self.aim]:
            os.kill(pid, self.how)

    def evidence(self, bed: Bed) -> str:
        popen = bed[self.name].popen
        if popen is not None and self.target == [popen.pid]:
            popen.poll()  # reaps it
        return f"pid {self.target[0]} is gone" if all(gone(p) for p in self.target) else ""

    def cure(self, bed: Bed) -> int:
        ended(bed, self.name, self.group)
        if self.whom.startswith("rank"):
            told(bed, self.name, f"ends: {self.whom} (pid {self.target[0]}) was killed by signal 9", 71)
        bed[self.name].start()
        bed[self.name].wait_ready()
        return 1


@dataclass
class Stop:
    """SIGSTOP, and SIGCONT after `seconds`. With `ends` it lasts until the engine ends itself.

    A stop that is shorter than PD_RANK_TIMEOUT must not cost a restart; after a longer one it may.
    """

    name: str
    whom: Whom
    seconds: float = 0.0
    ends: bool = False
    aim: int | None = None
    target: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    since: float = 0.0

    def inject(self, bed: Bed) -> None:
        self.target = pids_of(bed, self.name, self.whom)
        self.group = pids_of(bed, self.name, "group")
        self.since = time.monotonic()
        for pid in self.target if self.aim is None else [self.aim]:
            os.kill(pid, signal.SIGSTOP)

    def evidence(self, bed: Bed) -> str:
        stopped = all(process_state(p) == "T" for p in self.target)
        return f"/proc/{self.target[0]}/stat says T" if stopped else ""

    def cure(self, bed: Bed) -> int:
        if self.ends:
            ended(bed, self.name, self.group, 30.0)
            who, was = ("the API process", "was") if self.whom == "parent" else (self.whom, "is")
            told(bed, self.name, f"ends: {who} (pid {self.target[0]}) {was} silent for", 72)
            bed[self.name].start()
            bed[self.name].wait_ready()
            return 1
        wait(lambda: time.monotonic() - self.since >= self.seconds, self.seconds + 5.0, "the stop to last")
        for pid in reversed(self.target):
            os.kill(pid, signal.SIGCONT)
        popen, allowed = bed[self.name].popen, float(QUICK["PD_RANK_TIMEOUT"])
        assert popen is not None
        wait(
            lambda: popen.poll() is not None or bed.is_ready(self.name),
            60.0,
            f"{self.name} to be up or ended",
        )
        if popen.poll() is None:
            return 0
        assert self.seconds > allowed, f"{self.name} ended over {self.seconds:g} s: {bed[self.name].tail(3)}"
        bed[self.name].start()
        bed[self.name].wait_ready()
        return 1


@dataclass
class Restart:
    """Lives that end and begin anew without a co-restart, in an order. `crash` is SIGKILL, else SIGTERM.

    With `together` all end before the first begins; `names` is the order of the starts.
    """

    names: tuple[str, ...]
    crash: bool = False
    together: bool = False
    before: dict[str, str] = field(default_factory=dict)
    codes: list[int] = field(default_factory=list)

    def inject(self, bed: Bed) -> None:
        self.before = {n: str(bed[n].state()["incarnation"]) for n in self.names}
        how = signal.SIGKILL if self.crash else signal.SIGTERM
        if self.together:
            for name in dict.fromkeys(self.names):
                os.kill(bed[name].pid, how)
            self.codes += [bed[name].end(how) for name in dict.fromkeys(self.names)]
            for name in self.names:
                bed[name].start()
            return
        for name in self.names:
            self.codes.append(bed[name].end(how))
            bed[name].start()

    def evidence(self, bed: Bed) -> str:
        return f"exit {', '.join(map(str, self.codes))}; new pids " + ", ".join(
            str(bed[n].pid) for n in dict.fromkeys(self.names)
        )

    def cure(self, bed: Bed) -> int:
        assert set(self.codes) == {-9 if self.crash else 0}, f"exit codes {self.codes}"
        for name in self.before:
            bed[name].wait_ready()
            assert bed[name].state()["incarnation"] != self.before[name]
        return len(self.names)


@dataclass
class Armed:
    """A fault point, with the deadlines in force while it is armed. Ends when its victims have ended."""

    at: str
    point: str
    count: int = 1
    value: float = 0.0
    deadlines: dict[str, float] = field(default_factory=dict)  # "engine.name" -> seconds
    aim: str | None = None
    before: int = 0
    old: dict[str, float] = field(default_factory=dict)

    def inject(self, bed: Bed) -> None:
        self.before = bed.hits(self.at, self.point)
        for key, seconds in self.deadlines.items():
            engine, name = key.split(".")
            self.old[key] = bed[engine].state()["timeouts"][name]["value"]
            bed.stack.admin(engine, "timeouts", **{name: seconds})
        bed.stack.admin(
            self.aim or self.at, "faults", name=self.point, armed=True, count=self.count, value=self.value
        )

    def evidence(self, bed: Bed) -> str:
        hits = bed.hits(self.at, self.point) - self.before
        enough = hits >= max(self.count, 1)
        return f"{self.point} acted {hits} times" if enough else ""

    def cure(self, bed: Bed) -> int:
        bed.stack.admin(self.aim or self.at, "faults", name=self.point, armed=False)
        victims = {r["id"] for s in bed.states().values() for r in s["requests"]}
        wait(lambda: not victims & _ids(bed), 45.0, "the victims to end", every=0.1)
        for key, seconds in reversed(self.old.items()):
            engine, name = key.split(".")
            bed.stack.admin(engine, "timeouts", **{name: seconds})
        return 0


@dataclass
class Refused(Armed):
    """Decode grants no pages: seen by a request that waits for them while the point is armed.

    Ends once the deadline `fires` ("engine.name") has fired.
    """

    fires: str = ""
    fired: int = 0

    def inject(self, bed: Bed) -> None:
        self.fired = self._fired(bed)
        super().inject(bed)

    def _fired(self, bed: Bed) -> int:
        engine, name = self.fires.split(".")
        return int(bed[engine].state()["counters"]["deadlines_fired"].get(name, 0))

    def evidence(self, bed: Bed) -> str:
        state = bed[self.at].state()
        armed = any(a["name"] == self.point for a in state["faults"]["armed"])
        waiting = [r["id"] for r in state["requests"] if r["stage"] == "waiting" and r["stage_age_s"] > 0.5]
        return f"{len(waiting)} requests wait for pages" if armed and waiting else ""

    def cure(self, bed: Bed) -> int:
        wait(lambda: self._fired(bed) > self.fired, 20.0, f"{self.fires} to fire", every=0.1)
        return super().cure(bed)


@dataclass
class NoSteps(Armed):
    """The scheduler is alive and makes no step: the engine ends itself and is started anew."""

    group: list[int] = field(default_factory=list)

    def inject(self, bed: Bed) -> None:
        self.group = pids_of(bed, self.at, "group")
        super().inject(bed)

    def cure(self, bed: Bed) -> int:
        ended(bed, self.at, self.group, 40.0)
        told(bed, self.at, "ends: its scheduler made no progress for", 76)
        bed[self.at].start()
        bed[self.at].wait_ready()
        return 1


def _ids(bed: Bed) -> set[str]:
    return {r["id"] for s in bed.states().values() for r in s["requests"]}
