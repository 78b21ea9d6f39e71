"""The co-restart of one cell as a state machine; pure.

    HOLD -> DRAIN -> STOP_DECODE -> STOP_PREFILL -> PROVE -> START_PREFILL -> START_DECODE -> LINK -> CANARY
         -> RESUME -> DONE

Every stage has a deadline. A stage that fails, expires or is interrupted ends in HELD: admissions stay
held and nothing further is done, because guessing on would send traffic into an unknown state. It ends in
UNTOUCHED instead where HOLD itself did not pass, and where it is interrupted before anything was stopped: the
hold and the drain are taken back, and the cell serves as before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Stage(StrEnum):
    HOLD = "hold admissions"
    DRAIN = "drain engines"
    STOP_DECODE = "stop decodes"
    STOP_PREFILL = "stop prefills"
    PROVE = "prove that nothing is left"
    START_PREFILL = "start prefills"
    START_DECODE = "start decodes"
    LINK = "link both new lives"
    CANARY = "canaries over every edge"
    RESUME = "resume admissions"
    DONE = "done"
    HELD = "held"
    UNTOUCHED = "nothing changed"


ORDER: tuple[Stage, ...] = (
    Stage.HOLD,
    Stage.DRAIN,
    Stage.STOP_DECODE,
    Stage.STOP_PREFILL,
    Stage.PROVE,
    Stage.START_PREFILL,
    Stage.START_DECODE,
    Stage.LINK,
    Stage.CANARY,
    Stage.RESUME,
    Stage.DONE,
)
FINAL = (Stage.DONE, Stage.HELD, Stage.UNTOUCHED)

# Seconds that a model may take to load, where nobody says otherwise (`--wait`).
LOAD = 600.0
# Seconds. DRAIN gets the engines' own drain timeout on top; LINK counts from all models loaded.
DEADLINES: dict[Stage, float] = {
    Stage.HOLD: 10.0,
    Stage.DRAIN: 20.0,
    Stage.STOP_DECODE: 90.0,
    Stage.STOP_PREFILL: 90.0,
    Stage.PROVE: 15.0,
    Stage.START_PREFILL: LOAD,
    Stage.START_DECODE: LOAD,
    Stage.LINK: 60.0,
    Stage.CANARY: 120.0,
    Stage.RESUME: 20.0,
}


class Event(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    EXPIRED = "deadline"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Machine:
    """`at` is the stage that ended a run in HELD or UNTOUCHED; `passed` are the stages done, in order."""

    stage: Stage = Stage.HOLD
    at: Stage | None = None
    event: Event | None = None
    reason: str = ""
    passed: tuple[Stage, ...] = ()

    @property
    def final(self) -> bool:
        return self.stage in FINAL


def advance(machine: Machine, event: Event, reason: str = "", stopping: bool = True) -> Machine:
    """The machine after `event` in its stage; ValueError when it has ended already.

    `stopping` is False while nothing was told to stop yet.
    """
    if machine.final:
        raise ValueError(f"{machine.stage} is final")
    if event is Event.PASSED:
        following = ORDER[ORDER.index(machine.stage) + 1]
        return replace(machine, stage=following, passed=(*machine.passed, machine.stage))
    early = machine.stage is Stage.DRAIN or not stopping
    untouched = machine.stage is Stage.HOLD or (event is Event.INTERRUPTED and early)
    end = Stage.UNTOUCHED if untouched else Stage.HELD
    return replace(machine, stage=end, at=machine.stage, event=event, reason=reason)


# What a stage that did not pass leaves of the lives; the driver's own look says how far it came.
_LIVES = {
    Stage.DRAIN: "The engines run their old lives and were being drained.",
    Stage.STOP_DECODE: "Prefills are drained and run their old lives; decodes were being stopped.",
    Stage.STOP_PREFILL: "Decodes are stopped; prefills were being stopped.",
    Stage.PROVE: "Every engine of the cell was stopped.",
    Stage.START_PREFILL: "Every engine of the cell was stopped; prefills were being started.",
    Stage.START_DECODE: "Prefills were started anew; decodes were being started.",
}


def truth(machine: Machine, alone: bool = True, routed: bool = True, told: bool = True) -> list[str]:
    """What is true now, as sentences, from the stages passed; the driver adds what it can observe.

    `alone`: the router holds everything, because no other cell serves. `routed`: a router runs. `told`: it
    knows the whole cell.
    """
    if machine.stage is Stage.DONE:
        after = "admissions are open" if routed else "and no router runs, so nothing is served"
        if routed and not told:
            after = "and the router was never told of it all: it sends nothing there"
        return [f"Both sides run new lives, every edge is linked and answered, {after}."]
    if machine.stage is Stage.UNTOUCHED:
        return ["Nothing was stopped."]
    done = set(machine.passed)
    lines = ["The cell is cordoned: the router sends it nothing, other cells serve."]
    if not routed:
        lines = ["No router runs, so nothing is served."]
    elif not told:
        lines = ["The router was never told of the whole cell: it sends nothing there."]
    elif alone:
        lines = ["Admissions are held: new requests wait at the router until its hold timeout, then fail."]
    if machine.at in _LIVES:
        lines.append(_LIVES[machine.at])
    else:
        lines.append("Prefills and decodes were started anew.")
    if Stage.LINK in done:
        lines.append("Every edge is linked.")
    return lines


def next_command(machine: Machine, cell: str, routed: bool = True, told: bool = True) -> str:
    """What to run next; "" when nothing is left to do. A co-restart may always be begun again, which is no
    help where its very first stage fails."""
    if machine.stage is Stage.DONE:
        return "" if routed and told else "pdctl deploy"
    if machine.at is Stage.HOLD and machine.event is not Event.INTERRUPTED:
        return "pdctl diagnose"
    if machine.at is Stage.RESUME:
        return "pdctl resume"
    return f"pdctl restart --co {cell}"
