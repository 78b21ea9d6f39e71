"""How the lives of one server ended, as its log and its exit code tell; pure."""

from __future__ import annotations

import re

from pdctl.adapters.traces import Event, Traces
from pdctl.diagnose.facts import EngineView, Facts, Party, RouterView
from pdctl.diagnose.progress import moves
from pdctl.diagnose.rule import Severity
from pdctl.facts.missing import Missing, known
from pdctl.facts.unit import meaning

# Echoes of an older exception in another process, and ends that somebody asked for.
_ECHOES = re.compile(
    r"EngineDeadError|EngineGenerateError|AsyncEngineDeadError|CancelledError|KeyboardInterrupt|BrokenPipeError"
    r"|ConnectionResetError|SystemExit|ChildFailedError|EngineCore (?:initialization )?failed"
)
_ECHO_TEXTS = re.compile(
    r"Engine core initialization failed|EngineCore encountered an issue|Worker failed with error"
    r"|See stack trace|cancelled|Check failed core proc|Connection closed by peer|Connection reset by peer"
    r"|Broken pipe|communicator was aborted|remote process exited|Socket closed|another rank"
)
# What is told at this level ended nothing: a router's word of a peer that does not answer.
_CALM = re.compile(r"^.{0,60}?\b(?:INFO|DEBUG)\b")
_RUNNING = ("running", "starting", "stopping", "orphaned")
CLEAN = (0, 143, -15)  # ends that somebody asked for
_CLOCK = 2.0  # seconds by which a log's stamps and a process's start may differ
_AFTER = 300.0  # seconds in which an end is noticed and a new life begins


def signal_of(traces: Traces) -> int | None:
    """The signal that ended it; None when it runs, ended by itself, or nobody knows."""
    code = traces.ended
    if code is None:
        code = next((_status(e) for e in reversed(list(traces.of("process.unit_ended")))), None)
    if code is None:
        return None
    return -code if code < 0 else code - 128 if 128 < code < 160 else None


def _status(event: Event) -> int | None:
    """137 of "exited with code 137"; 9/KILL of systemd is a signal, and 1/FAILURE a code."""
    status = event.values.get("status", "")
    number, _, _ = status.partition("/")
    if not number.isdigit():
        return None
    return -int(number) if event.values.get("how") in ("killed", "dumped") else int(number)


def died(party: Party) -> bool:
    """It ended in a way that nobody asked for, as far as its traces show."""
    traces = party.traces
    if traces.ended not in (None, *CLEAN):
        return True
    if traces.ended is not None:
        return False
    ends = [s for e in traces.of("process.unit_ended") if (s := _status(e)) not in (None, *CLEAN)]
    return bool(ends) or bool(traces.restarts) or any(traces.of("process.fatal", "process.signal"))


def echoes(event: Event) -> bool:
    """Whether an exception only says that another process or peer ended."""
    name, text = event.values.get("type", ""), event.values.get("message", "")
    return bool(_ECHOES.search(name) or _ECHO_TEXTS.search(text))


def raised(traces: Traces) -> list[Event]:
    """Exceptions that are causes, oldest first: the last line of each traceback, without echoes.

    Where there is nothing but echoes, they are all that is known.
    """
    found: list[Event] = []
    later: list[Event] = []
    signs = ("watchdog.fired", "collective.timeout", "collective.gloo_timeout")
    messengers = {e.where for e in traces.of(*signs)}
    for event in traces.of("process.raised"):
        if event.where not in messengers and not _CALM.match(event.line):
            (later if echoes(event) else found).append(event)
    return found or later


_ABOVE = 60  # lines in which a library says what made the exception
_NEAR = 30.0  # seconds
_HEAD = re.compile(
    r"^\[\d{10}\.\d+\].{0,80}? UCX +\w+ +"
    r"|^\[[\d/:-]+\] \[TRT-LLM\](?: \[RANK \d+\])? \[E\] "
    r"|^.{0,120}?\b(?:ERROR|FATAL|CRITICAL|WARN(?:ING)?)\b[:\s|\]]*(?:\d\d-\d\d [\d:]{8} \[[\w./]+:\d+\] )?"
    r"|^.{0,100}?\.(?:cpp|cc|cu|c|h|py):\d+[\]:)\s]+"
)


def before(party: Party, event: Event) -> list[Event]:
    """Lines of error of the same life shortly before an exception, the oldest first."""
    begun = max((e.order for e in party.traces.of("life.start") if e.order < event.order), default=0)
    document = event.where.rpartition(":")[0]
    exceptions = {e.order for e in party.traces.of("process.raised", "process.traceback", "process.fatal")}
    return [
        e
        for e in party.traces.of("log.error", "log.native", "nccl.warn", "net.no_bootstrap")
        if max(begun, event.order - _ABOVE) < e.order < event.order
        and e.where.rpartition(":")[0] == document
        and e.order not in exceptions
        and (e.at is None or event.at is None or event.at - e.at <= _NEAR)
    ]


def said_in(event: Event) -> str:
    """A line without its stamp and place."""
    return _HEAD.sub("", event.line).strip()[:160].rstrip(".")


def told(event: Event) -> str:
    """An exception by class and message."""
    name = event.values.get("type", "").rpartition(".")[2]
    message = event.values.get("message", "").strip()
    return f"{name}: {message}" if message else name


# Frames of the language and its libraries: the place is the innermost one outside of them.
_NOT_OURS = re.compile(r"/lib(?:64)?/python3\.\d+/(?!site-|dist-)|/(?:torch|asyncio|concurrent)/|<frozen")
_TRACE = 60  # lines of one traceback


def place(traces: Traces, event: Event) -> tuple[str, list[Event]]:
    """("_read_blocks (nixl_connector.py:2188)", its lines): where an exception was raised, ("", []) unknown.

    The lines are the frame and, where it is an assertion without words, what it asserts.
    """
    begun = max((e.order for e in traces.of("process.traceback") if e.order <= event.order), default=0)
    inside = range(max(begun, event.order - _TRACE), event.order)
    frames = [e for e in traces.of("process.place") if e.order in inside]
    frame = next((e for e in reversed(frames) if not _NOT_OURS.search(e.values["file"])), None)
    if frame is None:
        return "", []
    file = frame.values["file"].rpartition("/")[2]
    asserted = [e for e in traces.of("process.asserted") if frame.order < e.order < event.order]
    words = [] if event.values.get("message") else asserted[-1:]
    return f"{frame.values.get('function', 'a module')} ({file}:{frame.values['line']})", [*words, frame]


def signature(event: Event) -> str:
    """What stays the same when the same failure happens again: class and message without numbers."""
    return re.sub(r"[\d.]+|0x[0-9a-f]+", "#", told(event))


def fatal(traces: Traces) -> Event | None:
    """The exception that ended the last life: the newest cause at or before the line that says it is dead.

    Of one burst the first is taken: later ones are what other threads and ranks say of it.
    """
    causes = raised(traces)
    ends = [e.order for e in traces.of("process.fatal")]
    starts = [e.order for e in traces.of("life.start")]
    begun = max((s for s in starts if any(c.order > s for c in causes)), default=0)
    here = [c for c in causes if c.order > begun]
    traced = {e.order for e in traces.of("process.traceback")}
    closed = [c for c in here if any(t < c.order <= t + 60 for t in traced)] or here
    if ends and closed:
        last = max(ends)
        near = [c for c in closed if abs(c.order - last) <= 120]
        closed = near or closed
    return closed[0] if closed else None


def failed_before(traces: Traces, order: int) -> bool:
    """An exception that ended one of its processes stands in the same life before that line."""
    begun = max((e.order for e in traces.of("life.start") if e.order < order), default=0)
    ends = [e.order for e in traces.of("process.fatal") if begun < e.order < order]
    causes = [e.order for e in raised(traces) if begun < e.order < order]
    return any(abs(end - cause) <= 60 for end in ends for cause in causes)


def begins(traces: Traces) -> list[int]:
    """The lines at which lives begin: the keeper's marks where it made any, else what engines print first.
    One start prints several lines, so those close together are one.
    """
    marks = [e.order for e in traces.of("life.begun")]
    if marks:
        return marks
    found, last = [], None
    for event in traces.of("life.start"):
        if last is None or event.order - last > 5:
            found.append(event.order)
        last = event.order
    return found


def runs(party: Party) -> bool:
    """Its unit is known to have a process now."""
    unit = party.member.unit
    return party.traces.ended is None and known(unit) and unit.state in _RUNNING


def past(party: Party, event: Event) -> bool:
    """Whether it is of a life before the last one, or of one that ended cleanly: it says nothing of now."""
    traces, unit = party.traces, party.member.unit
    begun = max(begins(traces), default=None)
    marked = any(traces.of("life.begun"))
    if traces.ended in CLEAN:
        return True
    if begun is not None and event.order < begun and (marked or runs(party)):
        return True
    if marked or not runs(party):
        return False
    started = unit.started_at if known(unit) else None
    if event.at is not None and started is not None:
        return event.at < started - _CLOCK
    return begun is None and bool(traces.restarts)


def recovered(party: Party) -> bool:
    """A newer life than the one that ended is at work."""
    traces = party.traces
    begun = max((e.order for e in traces.of("life.start")), default=0)
    ended = max((e.order for e in traces.of("process.fatal", "process.signal", "watchdog.fired")), default=0)
    return traces.ended is None and begun > ended > 0 and (moves(traces) or traces.health == "ok")


def gravity(party: Party) -> Severity | None:
    """How much an end in its log counts: a warning once a newer life is at work, and no more than a fact when
    that life itself shows that it is ready. None where it still stands.
    """
    if not recovered(party):
        return None
    state = party.state if isinstance(party, EngineView) else None
    ready = state is not None and known(state) and state.ready
    return Severity.INFO if ready else Severity.WARNING


def end_in_words(traces: Traces) -> str:
    signal = signal_of(traces)
    if traces.ended is not None:
        return meaning(traces.ended)
    return meaning(-signal) if signal else "it ended"


def kernel_killed(facts: Facts, party: Party) -> list[Event]:
    """Lines of its host's kernel that say its memory was the reason of its last end."""
    host = facts.host(party.member.host)
    lines = list(party.traces.of("process.oom_killed"))
    signs = ("kernel.oom_kill", "process.oom_killed")
    lines += [e for e in host.traces.events if e.sign in signs] if host else []
    return [e for e in lines if of_its_end(party, e)]


def of_its_end(party: Party, event: Event) -> bool:
    """A kernel's line may be of its end: that came with the line where it is known, and a life that began
    long after it is not concerned.
    """
    unit, seen = party.member.unit, party.traces
    if event.at is None:
        return True
    if known(unit) and (unit.state == "absent" or unit.exit == 0):
        return False  # nobody killed it
    if known(unit) and unit.state != "running":
        return unit.since is None or abs(unit.since - event.at) < _AFTER
    begun = unit.started_at if known(unit) else seen.started_at or _told_start(party)
    return begun is None or begun < event.at + _AFTER


def _told_start(party: Party) -> float | None:
    """When it says itself that it began."""
    if not isinstance(party, EngineView | RouterView):
        return None
    state = party.state
    at = state.started_at if not isinstance(state, Missing) else state
    return at if known(at) else None
