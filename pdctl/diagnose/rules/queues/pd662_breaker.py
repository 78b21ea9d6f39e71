"""PD662: the router offers no worker although workers are well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import taken_back
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died
from pdctl.diagnose.progress import moves, stall
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_FEW = 3  # openings that the restart of a worker explains
_SETTLED = 60.0  # seconds in which a router finds workers that became ready
_TESTS = (
    Hypothesis(
        "its policy or discovery offers it no worker of that role",
        "ask it for its workers (/workers, /list_workers); start it once with --policy random",
    ),
    Hypothesis(
        "its health check fails where the workers are well", "curl a worker's health from the router's host"
    ),
    Hypothesis("workers fail on real requests", "one generation sent to a worker directly"),
)


def _well(facts: Facts) -> bool:
    return bool(facts.engines) and not any(
        died(e) or stall(e.traces) or e.traces.health not in ("", "ok") for e in facts.engines
    )


def ready_long_ago(facts: Facts, lines: Sequence[Event]) -> bool:
    """Every engine said that it is ready, a while before the router found none."""
    if not lines or lines[-1].at is None:
        return False
    ready = [
        max((e.at for e in p.traces.of("net.ready") if e.at is not None), default=None) for p in facts.engines
    ]
    return all(at is not None and at + _SETTLED < lines[-1].at for at in ready)


def _routers(facts: Facts) -> list[Party]:
    return [p for p in facts.parties if p.role == "router" or any(p.traces.of("router.no_workers"))]


def _errors(facts: Facts, router: Party, sign: str) -> list[Event]:
    """Answers of that kind, in the router's log or a worker's, before it ran out of workers."""
    return [e for p in (router, *facts.engines) for e in p.traces.of(sign)]


@rule("PD662", "breaker open, workers well", Severity.ERROR, ["engine.reach"], echo_of=["PD220"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The router's circuit breakers keep every worker out, and the workers are well.

    What it looks like: 503 with no_available_workers or "all circuits open" while a direct request to a
    worker works. Either clients' own errors (400, too long) were counted as failures, or load came before
    the workers could serve and the breaker stays open longer than clients try again.

    What else it could be: workers that fail really open breakers rightly: 5xx in their logs, a worker that
    is down, tokens that stand still.

    What to do: reject bad requests before the router or patch it to leave 4xx out; send a real generation
    before it gets traffic; keep the breaker's time (--cb-timeout-duration-secs) below what clients retry.
    """
    for router in _routers(facts):
        lines, state = list(router.traces.of("router.no_workers")), router.traces.last("router_breaker")
        opened = list(router.traces.of("router.breaker_open"))
        over = state != 1 and len(opened) <= _FEW and lines and taken_back(router, lines[-1])
        if not (lines or state == 1) or over or not _well(facts):
            continue
        clients = _errors(facts, router, "router.client_error")
        why = _why(facts, router, clients, bool(opened) or state == 1)
        if why is None:
            continue
        said, remedy, sure = why
        yield rule.finding(
            router.name,
            f"{router.name} {said}",
            [
                *(["a circuit breaker is open"] if state == 1 else []),
                *quoted(lines, 2),
                *quoted(opened, 2),
                *quoted(clients, 2),
            ],
            remedy,
            touches=[router.name, *(e.name for e in facts.engines)],
            since=since(lines),
            hypotheses=[] if sure else _TESTS,
        )


def _why(facts: Facts, router: Party, clients: Sequence[Event], opened: bool) -> tuple[str, str, bool] | None:
    """(what it does, remedy, whether that is sure); None when nothing shows that workers are well."""
    lines = list(router.traces.of("router.no_workers"))
    servers = _errors(facts, router, "router.server_error")
    servers = [e for e in servers if not lines or e.order < lines[0].order or e.party != router.name]
    if len(clients) >= 3 and len(clients) > 3 * len(servers):
        return (
            "counted clients' own errors (4xx) as failures and keeps every worker out; they are well.",
            "restart the router; reject requests that are too long before it, or upgrade it",
            True,
        )
    if opened or any("circuit" in e.line for e in lines):
        return (
            "keeps every worker out by its breakers, and the workers are well.",
            "send one real generation before traffic; --cb-timeout-duration-secs below clients' retries",
            True,
        )
    if ready_long_ago(facts, lines) or any(e.traces.health == "ok" or moves(e.traces) for e in facts.engines):
        return (
            "offers no worker although workers are well.",
            "see how the router checks workers: path, port and timeout of its health check",
            False,
        )
    return None
