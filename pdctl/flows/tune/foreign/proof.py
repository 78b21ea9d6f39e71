"""See the watchdog of a prefill of another kind end an inert request, and say what cannot be seen."""

from __future__ import annotations

import time
from concurrent.futures import wait
from dataclasses import dataclass, field

from pdctl.errors import DeadlineError, PdctlError
from pdctl.fleet.model import Engine
from pdctl.flows.canary import router_canary
from pdctl.flows.context import Context
from pdctl.flows.edge_canary import once
from pdctl.flows.foreign import knows_edges
from pdctl.flows.tune.foreign.inert import Ended, send
from pdctl.flows.tune.foreign.look import numbers
from pdctl.flows.tune.foreign.watchdogs import INERT, Watchdog
from pdctl.flows.tune.proof import NEIGHBOURS, Check, Proof
from pdctl.flows.waiting import until

# These engines look at their clocks between steps and once a second, and prefill takes its time before.
SLACK = 5.0
EARLY = 0.5
_ASKED = 60.0
_COUNTED = 10.0
_COUNTERS = {"sglang": ("bootstrap_failed_total", "transfers_failed_total"), "vllm": ("kv_expired_total",)}
_PAGES = ("kv_usage", "kv_used_tokens")
_LINES = {"sglang": "timed out after", "vllm": "expired KV blocks"}
_BARE = "its numbers are not shown (SGLang and vLLM: --enable-metrics, a recent /v1/loads)"


@dataclass
class _Scene:
    """Numbers before, while the request stood, and after; `ended` is None while its wait went on."""

    before: dict[str, float]
    during: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    neighbours: list[str] = field(default_factory=list)
    ended: Ended | None = None
    fired: float | None = None
    lines: list[str] = field(default_factory=list)


def prove(ctx: Context, prefill: Engine, decode: Engine | None, dogs: list[Watchdog]) -> list[Proof]:
    """One inert request to `prefill`, and a proof for each watchdog of it that such a request could meet.

    It waits as long as the longest of them is set to. Nothing has to be put back.
    """
    able = [dog for dog in dogs if dog.deadline in INERT[prefill.kind]]
    if not able:
        return []
    most = max(dog.value for dog in able)
    first = min(dog.value for dog in able)
    scene = _Scene(numbers(ctx, prefill))
    log = ctx.units_of(prefill)
    cursor = log.log_since(prefill.name).cursor
    ctx.say(f"{prefill.name}: an inert request; its watchdogs are due after {first:g} to {most:g} s")
    inert = send(ctx, prefill, most + 2 * SLACK)
    began = time.monotonic()
    wait([inert.answer], min(1.0, first / 2))
    scene.neighbours = _neighbours(ctx, prefill, decode)
    scene.during = numbers(ctx, prefill)
    wait([inert.answer], most + 3 * SLACK)
    scene.ended = inert.answer.result() if inert.answer.done() else None
    if prefill.kind == "vllm":
        scene.fired = _expired(ctx, prefill, scene, began, most)
    elif scene.ended is not None and scene.ended.status != 200:
        scene.fired = scene.ended.seconds
    scene.after = _counted(ctx, prefill, scene)
    text = log.log_since(prefill.name, cursor).text
    scene.lines = [line for line in text.splitlines() if _LINES[prefill.kind] in line and inert.key in line]
    nearest = _nearest(able, scene.fired)
    return [_proof(prefill, decode, dog, scene, inert.key, nearest) for dog in able]


def _nearest(dogs: list[Watchdog], fired: float | None) -> Watchdog | None:
    """The one that was due last before the end; of two that were due at once the outer."""
    due = [dog for dog in dogs if fired is not None and dog.value <= fired + EARLY]
    return max(reversed(due), key=lambda dog: dog.value, default=None)


def _expired(ctx: Context, prefill: Engine, scene: _Scene, began: float, most: float) -> float | None:
    """vLLM's client has its answer long before; what fires shows in a counter alone."""
    name = "kv_expired_total"
    if name not in scene.before:
        return None

    def stands() -> str:
        return "" if numbers(ctx, prefill).get(name, 0.0) > scene.before[name] else "nothing has expired"

    try:
        until(stands, max(0.0, most + SLACK - (time.monotonic() - began)), 0.2)
    except DeadlineError:
        return None
    return time.monotonic() - began


def _counted(ctx: Context, prefill: Engine, scene: _Scene) -> dict[str, float]:
    """The numbers once its counter has moved: they are published a moment after the fact."""
    seen: dict[str, float] = {}

    def behind() -> str:
        seen.clear()
        seen.update(numbers(ctx, prefill))
        return "" if _moved(prefill.kind, scene.before, seen) and not _held(scene.before, seen) else "behind"

    try:
        until(behind, _COUNTED if scene.before else 0.0, 0.5)
    except DeadlineError:
        pass
    return seen


def _moved(kind: str, before: dict[str, float], now: dict[str, float]) -> float:
    return sum(now.get(name, 0.0) - before.get(name, 0.0) for name in _COUNTERS[kind])


def _held(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """Numbers of pages that are above what they were."""
    return [name for name in _PAGES if name in before and now.get(name, 0.0) > before[name] + 1e-9]


def _neighbours(ctx: Context, prefill: Engine, decode: Engine | None) -> list[str]:
    """What became of healthy requests meanwhile, "" for an answered one; empty where none can be sent."""
    found: list[str] = []
    for number in range(NEIGHBOURS):
        try:
            if ctx.fleet.router.kind != "none":
                router_canary(ctx, _ASKED)
                found.append("")
            elif decode is not None and knows_edges(prefill, decode):
                found.append(once(ctx, prefill, decode, f"Neighbour {number}: count to five.", _ASKED)[1])
        except PdctlError as error:
            found.append(error.message)
    return found


def _proof(
    prefill: Engine, decode: Engine | None, dog: Watchdog, scene: _Scene, key: str, nearest: Watchdog | None
) -> Proof:
    checks = [_in_time(prefill.kind, dog, scene, nearest)]
    fired = checks[0].ok
    checks += [
        _told(prefill.kind, scene),
        _counter(prefill.kind, scene),
        _pages(scene),
        _logged(scene),
        _untouched(scene),
    ]
    if fired is None:
        # What another deadline did is no evidence of this one.
        checks = [checks[0], *(Check(c.name, None, "this watchdog did not fire") for c in checks[1:])]
    name = decode.name if decode else ""
    return Proof(prefill.name, name, dog.value, scene.fired if fired else None, key, tuple(checks), dog.name)


def _in_time(kind: str, dog: Watchdog, scene: _Scene, nearest: Watchdog | None) -> Check:
    name, waits = "fired in time", INERT[kind][dog.deadline]
    if scene.fired is None:
        if kind == "vllm" and "kv_expired_total" not in scene.before:
            return Check(name, None, "its counter of expired requests is not shown in /metrics")
        return Check(name, False, f"nothing ended the wait within {dog.value + SLACK:g} s")
    late = scene.fired - dog.value
    said = f"after {scene.fired:.2f} s, due at {dog.value:g} s"
    if nearest is dog:
        told = f"{said}: {max(0.0, late):.2f} s late, {SLACK:g} s are allowed"
        return Check(name, late <= SLACK, told)
    if nearest is None or late < 0:
        other = f"{nearest.name} of {nearest.value:g} s" if nearest else "another deadline"
        return Check(name, None, f"{other} ended the request {said}, before it could")
    if abs(nearest.value - dog.value) <= EARLY:
        both = f"{nearest.name} of {nearest.value:g} s was due too: which of the two ended it cannot be told"
        return Check(name, None, f"{said}, where {both}")
    return Check(
        name,
        None,
        f"{nearest.name} of {nearest.value:g} s ended the request {said}: this build counts a room that no "
        f"decode asks for under that deadline, and it never came into {waits}",
    )


def _told(kind: str, scene: _Scene) -> Check:
    name = "error at the client"
    if kind == "vllm":
        return Check(name, None, "its client has the prefill's answer already: nobody is told of an expiry")
    ended = scene.ended
    if ended is None or ended.status == 0:
        return Check(name, False, ended.said if ended else "no answer came")
    return Check(name, ended.status >= 500 and bool(ended.said), f"HTTP {ended.status}: {ended.said[:160]}")


def _counter(kind: str, scene: _Scene) -> Check:
    name, names = "counter moved by one", [n for n in _COUNTERS[kind] if n in scene.after]
    if not names:
        return Check(name, None, _BARE)
    moved = _moved(kind, scene.before, scene.after)
    return Check(name, moved == 1, f"{', '.join(names)} moved by {moved:g}")


def _pages(scene: _Scene) -> Check:
    name = "pages are back"
    shown = _held(scene.before, scene.during)
    if not scene.before:
        return Check(name, None, _BARE)
    if not shown:
        return Check(name, None, "its numbers did not show the request while it stood, so they cannot now")
    left = _held(scene.before, scene.after)
    said = ", ".join(
        f"{n} {scene.before[n]:g}, {scene.during[n]:g}, {scene.after.get(n, 0.0):g}" for n in shown
    )
    return Check(name, not left, f"before, during and after: {said}")


def _logged(scene: _Scene) -> Check:
    name = "a line in the log"
    return Check(name, bool(scene.lines), scene.lines[0] if scene.lines else "no line names it")


def _untouched(scene: _Scene) -> Check:
    name = "neighbours untouched"
    if not scene.neighbours:
        said = "no router is named, and how this kind hands over is not known to pdctl"
        return Check(name, None, said)
    bad = [said for said in scene.neighbours if said]
    answered = f"{len(scene.neighbours) - len(bad)} of {len(scene.neighbours)} answered"
    return Check(name, not bad, answered + (f": {bad[0]}" if bad else ""))
