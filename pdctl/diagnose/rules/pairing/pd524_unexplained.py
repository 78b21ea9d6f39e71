"""PD524: transfers fail and nothing names why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rooms import Failure, Kind, echoes_only, failures
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.starts import foreign, last_good, started
from pdctl.diagnose.words import count, span

_BACKENDS = ("nixl", "mooncake")
_MANY = 3
_STORM = 8  # aborted rooms; fewer are clients that left
_HEALED = 60.0  # seconds between the last failure and a transfer that worked
_IDLE = 1800.0  # seconds without a sign of work before the first failure
_ABOVE = 8  # lines in which a library says why, before the engine says that it failed
_LONG = 600.0  # seconds of good service after the start: it degraded


def _backend(views: Sequence[EngineView]) -> str:
    for view in views:
        name = view.traces.settings.get("transfer_backend") or view.traces.settings.get(
            "kv_transfer_config.kv_connector", ""
        )
        if name:
            return name.lower()
    return ""


def _swap(backend: str) -> Hypothesis:
    other = "mooncake" if "nixl" in backend else "nixl"
    return Hypothesis(
        f"a fault of the {backend or 'transfer'} path with this model or hardware",
        f"run the same with the transfer backend {other} and change nothing else",
    )


_LATE = Hypothesis(
    "the peer answers later than the transport's timeout under load",
    "raise the timeout that the line names and send requests one at a time: do they go through?",
)
_BUFFER = Hypothesis(
    "the prompt's KV is larger than the transceiver's buffer (max_tokens_in_buffer)",
    "send a short prompt: does it go through? Then raise max_tokens_in_buffer above the longest",
)
_NOT_READY = (
    Hypothesis(
        "the prefill does not have these requests: their leg failed, or went to another prefill or nowhere",
        "grep one of these ids in the log of every prefill: no record, an error, or another engine?",
    ),
    Hypothesis(
        "the prefill computes longer than decode waits (VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT)",
        "the prefill's waiting queue at that time; send one request alone: does it go through?",
    ),
)
_ECHOES = (
    Hypothesis(
        "a client or the router gave up first (a timeout or a disconnect)",
        "find the oldest line of one of these rooms in the router's log and compare its age with its timeout",
    ),
    Hypothesis(
        "an older failure on another rank or engine",
        "collect the logs of every rank of both sides and grep the room for the first differing line",
    ),
)


def _gravity(found: Sequence[Failure], views: Sequence[EngineView], real: bool) -> Severity:
    """INFO for what is over: transfers worked well after the last failure."""
    good, last = last_good(*views), max((f.at for f in found if f.at is not None), default=None)
    if good is not None and last is not None and good > last + _HEALED:
        return Severity.INFO
    return Severity.ERROR if real else Severity.WARNING


def _pause(found: Sequence[Failure], views: Sequence[EngineView]) -> float | None:
    """How long nothing was done before the first failure, where that was long."""
    first = since([f.event for f in found])
    if first is None:
        return None
    marks = [r.at for v in views for r in v.traces.readings if r.at is not None and r.at < first]
    marks += [at for v in views if (at := v.traces.last_transfer_at) is not None and at < first]
    return first - max(marks) if marks and first - max(marks) > _IDLE else None


def _before(facts: Facts, found: Sequence[Failure]) -> list[Event]:
    """The library's own error lines just above the first failure: what to search for."""
    if not found or found[0].kind in (Kind.ECHO, Kind.ABORT):
        return []
    first, party = found[0].event, facts.party(found[0].party)
    lines = party.traces.of("log.error") if party else ()
    return [
        e for e in lines if 0 < first.order - e.order <= _ABOVE and e.where.rpartition(":")[0] == _file(first)
    ]


def _file(event: Event) -> str:
    return event.where.rpartition(":")[0]


def _late_peer(facts: Facts, found: Sequence[Failure]) -> Hypothesis | None:
    """All of them are older than the peer's own word that it is ready."""
    last = max((f.at for f in found if f.at is not None), default=None)
    for peer in partners(facts, [f.party for f in found]):
        view = facts.engine(peer)
        ready = [e.at for e in view.traces.of("start.ready") if e.at is not None] if view else []
        if last is not None and ready and last < min(ready):
            return Hypothesis(
                f"{peer} was not ready yet: it said so {span(min(ready) - last)} after the last of them",
                "send one request now: does it go through?",
            )
    return None


def _doubts(facts: Facts, found: Sequence[Failure], views: Sequence[EngineView]) -> list[Hypothesis]:
    if echoes_only(found):
        return [*_ECHOES, _swap(_backend(views))]
    starts = [s for v in views if (s := started(facts, v)) is not None]
    first = since([f.event for f in found])
    above = " ".join(e.line for e in _before(facts, found))
    doubts = [_LATE] if re.search(r"(?i)time ?out|timed out", above) else []
    if any("waiting for P side ready" in f.event.line for f in found):
        doubts = list(_NOT_READY)
    if (late := _late_peer(facts, found)) is not None:
        doubts.insert(0, late)
    if any("in kv cache transfer for" in f.event.line for f in found):
        doubts.append(_BUFFER)
    doubts.append(_swap(_backend(views)))
    if (pause := _pause(found, views)) is not None:
        doubts.append(
            Hypothesis(
                f"connections that idled for {span(pause)} were dropped on the way (firewall, NAT, NIC)",
                "send a request every minute over night, or set a TCP keepalive: does it stay well?",
            )
        )
    if starts and first is not None and first - max(starts) > _LONG:
        age = span(first - max(starts))
        doubts.append(
            Hypothesis(
                f"something wears out with the number of transfers: it worked for {age} after the start",
                "restart the pair together: does it work again for as long?",
            )
        )
    else:
        doubts.append(
            Hypothesis("the path between the hosts", "run ib_write_bw or nixlbench between the two hosts")
        )
    return doubts


@rule(
    "PD524",
    "transfers fail without a named cause",
    Severity.ERROR,
    ["engine.reach"],
    echo_of=["PD211", "PD329"],
    fallback=True,
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Hand-overs fail, and what the logs say only repeats a decision taken elsewhere or is not known.

    What it looks like: KVTransferError, "Aborted by AbortReq", "unknown reason from another rank", stream
    errors at the router, failed-transfer counters that grow. An abort is always an effect: somebody gave up
    before. This finding leads only when no other explains it.

    What else it could be: anything older on the same room. Failures at exactly a timer's value are PD525,
    one engine among many PD512, a restart of one side PD510.

    What to do: do the cheapest test of the hypotheses. Swapping the transfer backend divides the suspects
    in one run.
    """
    views = [e for e in facts.engines if foreign(e)]
    found = (
        [f for f in failures(facts, *(v.name for v in views)) if f.kind is not Kind.TIMEOUT] if views else []
    )
    streams = facts.events("router.stream_error")
    counted = [
        f"{v.name}: failed transfers grew by {moved:.0f}"
        for v in views
        for n in ("transfers_failed_total", "bootstrap_failed_total")
        if (moved := v.traces.moved(n)) and moved >= _MANY
    ]
    # A client that leaves aborts its own request: that is no failure.
    real = [f for f in found if f.kind is not Kind.ABORT]
    storm = len({f.room for f in found if f.room}) >= _STORM
    if not real and not counted and not streams and not storm:
        return
    touched = list(dict.fromkeys([f.party for f in found] or [v.name for v in views]))
    # Whose peer ended lost what it was sending: what ended the peer may explain it.
    lost = [p.name for p in facts.engines if died(p) and p.name in partners(facts, touched)]
    backend = _backend(views)
    own = [f for f in real if f.kind is not Kind.ECHO]
    said = "and what names the cause is not in these logs" if not own else "and no rule knows their error"
    worst = own or real or found
    yield rule.finding(
        ", ".join(touched) or "router",
        f"Transfers{f' over {backend}' if backend else ''} fail "
        f"({count(len(real) or len(streams) or len(counted), 'line')}), {said}.",
        [*quoted(_before(facts, worst), 2), *quoted([f.event for f in worst]), *quoted(streams, 1), *counted],
        f"pdctl logs {touched[0]}" if touched else "",
        touches=[*touched, *lost],
        since=since([f.event for f in worst] or streams),
        severity=_gravity(found, views, bool(real or counted or streams)),
        hypotheses=_doubts(facts, found, views),
    )
