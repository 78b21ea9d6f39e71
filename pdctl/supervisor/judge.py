"""From looks and verdicts to what is wrong with which cell; pure.

A look is cheap and sees that something may be wrong; the rules of diagnose, over everything that hosts and
engines say, see what. Neither is believed where the supervisor itself may be what is cut off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from pdctl.adapters.picture import Engine, Reach, Router
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.ledger import Entry
from pdctl.diagnose.report import Report
from pdctl.diagnose.rule import Severity
from pdctl.facts.missing import known
from pdctl.supervisor.observation import EngineLook, HostLook, Observation, RouterLook

# The case of what belongs to no cell: the router.
FRONT = ""
OLD = 5.0  # seconds in a queue that no healthy request waits while nothing moves
YOUNG = 2.0  # two clocks, and a log line that is written late
LONG = 15.0  # seconds of one request at the router while nothing moves
SILENT = (Reach.UNREACHABLE, Reach.TIMED_OUT)
_UP = ("active", "activating")
_LEAVING = ("draining", "drained", "stopping")


@dataclass(frozen=True)
class Seen:
    """One finding that stands at the root of a verdict. `requests` are ids that it is about, oldest first."""

    code: str
    subject: str
    cell: str
    touches: frozenset[str]
    summary: str
    certain: bool = True
    remedy: str = ""
    requests: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.code, self.subject


# A fault point that is armed: it says how something fell ill, and not that it is well.
ARMED = "PD606"
# Verdicts of the ledger that an abort can end.
_STUCK = {"PD602": "stuck", "PD601": "forgotten"}


def seen(report: Report, cells: Mapping[str, str]) -> list[Seen]:
    """Errors that nothing else explains but an armed fault, each with its cell. `cells` is unit -> cell.

    What befell an earlier life of all that it touches, as a log still tells, is not wrong now.
    """
    found = []
    born = _born(report.facts)
    for placed in report.verdict.findings:
        f = placed.finding
        cause = None if placed.caused_by is None else report.verdict.findings[placed.caused_by].finding
        if f.severity is not Severity.ERROR or (cause is not None and cause.code != ARMED):
            continue
        if f.since is not None and _past(f.since, [born[n] for n in f.touches if n in born]):
            continue
        touched = {cells[name] for name in f.touches if name in cells}
        cell = next(iter(touched)) if len(touched) == 1 else FRONT
        ids = _requests(report.ledger, _STUCK.get(f.code, ""), f.touches)
        found.append(Seen(f.code, f.subject, cell, f.touches, f.summary, f.certain, f.remedy, ids))
    return found


def _born(facts: Facts) -> dict[str, float]:
    """When the present life of each engine and of the router began, Unix seconds; 0 where it is not known."""
    states = {view.name: view.state for view in facts.engines}
    found = {n: _begin(s) if known(s) and s.ready else 0.0 for n, s in states.items()}
    if known(facts.router):
        front = facts.router.state
        found[facts.router.name] = _begin(front) if known(front) else 0.0
    return found


def _begin(state: Engine | Router) -> float:
    """A life that begins after now is of a clock that was set back since: when it began is not known."""
    at = state.started_at
    return at if known(at) and at <= state.now else 0.0


def _past(since: float, births: Sequence[float]) -> bool:
    """Whether all that it touches began to live after it, and lives well."""
    return bool(births) and min(births) > since + YOUNG


def _requests(ledger: tuple[Entry, ...], verdict: str, touches: frozenset[str]) -> tuple[str, ...]:
    mine = [e for e in ledger if e.verdict == verdict and {e.prefill, e.decode} & touches]
    return tuple(e.id for e in sorted(mine, key=lambda e: -e.stage_age))


def cut_off(now: Observation) -> str:
    """Why this look says nothing of the fleet: the supervisor itself has lost it. "" when it has not."""
    if now.nobody_answers:
        return "no engine, router or host answers at all: the supervisor itself is cut off"
    far = [h for h in now.hosts if not h.local]
    silent = [e for e in now.engines if e.reach in SILENT]
    if len(far) > 1 and not any(h.reachable for h in far) and len(silent) == len(now.engines):
        return f"none of {len(far)} hosts and no engine can be reached: the supervisor itself is cut off"
    return ""


def blind(engines: tuple[EngineLook, ...], now: Observation) -> str:
    """Why this cell cannot be judged from here, "" when it can."""
    for engine in engines:
        if engine.reach not in SILENT:
            continue
        host = now.host(engine.host)
        if host is not None and not host.reachable:
            return f"neither {engine.name} nor its host {engine.host} can be reached: {host.detail}"
        runs = host is not None and getattr(host.units.get(engine.name), "state", "") in _UP
        if engine.reach is Reach.UNREACHABLE and host is not None and not host.local and runs:
            return f"{engine.name} cannot be reached from here, and its host says that it runs"
    return ""


def suspicions(before: Observation | None, now: Observation) -> dict[str, list[str]]:
    """What the rules should look at, by cell. Cheap, and rather too much than too little."""
    found: dict[str, list[str]] = {}
    old = {e.name: e for e in before.engines} if before else {}
    lives = {e.name: e.incarnation for e in now.engines if e.incarnation}
    hosts = {h.name: h for h in now.hosts}
    still: set[str] = set()
    for cell, engines in now.cells().items():
        if before is not None and not _moves(old, engines):
            still.add(cell)
        for engine in engines:
            words = _of_engine(engine, old.get(engine.name), lives, cell in still)
            found.setdefault(cell, []).extend([*words, *_of_unit(engine, hosts.get(engine.host))])
    if now.router is not None:
        found.setdefault(FRONT, []).extend(_of_router(now.router))
        for cell, why in _at_router(now.router, {e.name: e for e in now.engines}, still):
            found.setdefault(cell, []).append(why)
    return {cell: words for cell, words in found.items() if words}


def _moves(old: Mapping[str, EngineLook], engines: tuple[EngineLook, ...]) -> bool:
    """Whether the cell handed anything over or computed a token since the look before."""
    for engine in engines:
        then = old.get(engine.name)
        if then is None or then.life != engine.life:
            return True
        if engine.tokens != then.tokens or transfers(engine) != transfers(then):
            return True
    return False


def transfers(engine: EngineLook) -> int:
    """Transfers that went well since its start, with all its peers."""
    return sum(p.transfers_ok for p in engine.peers)


def _of_engine(
    engine: EngineLook, then: EngineLook | None, lives: Mapping[str, str], still: bool
) -> Iterator[str]:
    if not engine.answered:
        yield f"{engine.name}: {engine.detail or engine.reach.value}"
        return
    if not engine.ready:
        yield f"{engine.name} is not ready: {', '.join(engine.not_ready) or engine.status}"
    if engine.status in _LEAVING:
        yield f"{engine.name} is {engine.status}"
    if engine.snapshot_age is not None and engine.snapshot_age > OLD:
        yield f"{engine.name} publishes nothing new for {engine.snapshot_age:.0f} s"
    for peer in engine.peers:
        name = peer.instance or peer.address
        if peer.stale or not peer.linked:
            yield f"{engine.name} has no live link to {name}"
        elif peer.incarnation and lives.get(name, peer.incarnation) != peer.incarnation:
            yield f"{engine.name} holds an old life of {name}"
    if still and engine.working and (engine.oldest is None or engine.oldest > OLD):
        yield f"{engine.name}: {engine.working} requests and nothing moves"
    yield from _since(engine, then)


def _since(engine: EngineLook, then: EngineLook | None) -> Iterator[str]:
    """What happened between two looks."""
    if then is None or not then.answered:
        return
    if then.life != engine.life:
        yield f"{engine.name} began a new life"
        return
    for name, count in engine.fired.items():
        if count > then.fired.get(name, 0):
            yield f"{engine.name}: the deadline {name} fired"
    for code, count in engine.failed.items():
        if count > then.failed.get(code, 0):
            yield f"{engine.name}: a request failed with {code}"


def _of_unit(engine: EngineLook, host: HostLook | None) -> Iterator[str]:
    if host is None:
        return
    unit = host.units.get(engine.name)
    if not host.reachable:
        yield f"host {host.name} cannot be asked: {host.detail}"
    elif unit is not None and unit.wanted and unit.state not in _UP:
        yield f"the unit of {engine.name} is {unit.state}"


def _of_router(front: RouterLook) -> Iterator[str]:
    if not front.answered:
        yield f"{front.name}: {front.detail or front.reach.value}"
    elif front.admission == "held":
        yield f"{front.name} holds admissions for {front.hold_age or 0:.0f} s"


def _at_router(
    front: RouterLook, engines: Mapping[str, EngineLook], still: Set[str]
) -> Iterator[tuple[str, str]]:
    """Requests that the router counts and that nothing moves on, by cell; engines that it passes by."""
    for request in front.requests:
        if request.stage not in ("dispatched", "streaming") or request.stage_age <= LONG:
            continue
        for leg in (request.prefill, request.decode):
            engine = engines.get(leg.engine) if leg and leg.status == "pending" else None
            if engine is not None and engine.cell in still:
                yield engine.cell, f"{front.name}: {request.id} waits and nothing moves"
    for entry in front.engines:
        engine = engines.get(entry.instance)
        if engine is not None and engine.ready and (entry.cordoned or not entry.ready):
            yield engine.cell, f"{front.name} sends nothing to {entry.instance}"


def away(engines: tuple[EngineLook, ...], hosts: tuple[HostLook, ...]) -> str:
    """Why a host of these cannot be asked, "" when all can."""
    mine = {e.host for e in engines}
    return "; ".join(f"{h.name}: {h.detail}" for h in hosts if h.name in mine and not h.reachable)


def well(engines: tuple[EngineLook, ...]) -> frozenset[str]:
    """Those with which nothing is wrong but, maybe, their links: they live, publish and are not leaving."""
    alive = (e for e in engines if e.answered and e.status == "ready")
    return frozenset(e.name for e in alive if (e.snapshot_age or 0.0) <= OLD)


def serves(engines: tuple[EngineLook, ...]) -> bool:
    """Whether the cell can take requests as it says itself."""
    roles = {e.role for e in engines if e.answered and e.ready and e.status not in _LEAVING}
    return "both" in roles or {"prefill", "decode"} <= roles
