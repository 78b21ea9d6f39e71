"""PD662: the router offers no worker although workers are well."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died
from pdctl.diagnose.progress import moves, stall
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_TESTS = (
    Hypothesis(
        "its health check fails where the workers are well", "curl a worker's health from the router's host"
    ),
    Hypothesis("workers fail on real requests", "one generation sent to a worker directly"),
)


def _well(facts: Facts) -> bool:
    return bool(facts.engines) and not any(
        died(e) or stall(e.traces) or e.traces.health not in ("", "ok") for e in facts.engines
    )


def _routers(facts: Facts) -> list[Party]:
    return [p for p in facts.parties if p.role == "router" or any(p.traces.of("router.no_workers"))]


def _errors(facts: Facts, router: Party, sign: str) -> list[Event]:
    """Answers of that kind, in the router's log or a worker's, before it ran out of workers."""
    return [e for p in (router, *facts.engines) for e in p.traces.of(sign)]


@rule("PD662", "breaker open, workers well", Severity.ERROR, ["logs"])
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
        lines = list(router.traces.of("router.no_workers"))
        if not lines or not _well(facts):
            continue
        clients, servers = (
            _errors(facts, router, "router.client_error"),
            _errors(facts, router, "router.server_error"),
        )
        servers = [e for e in servers if e.order < lines[0].order or e.party != router.name]
        engines = [e.name for e in facts.engines]
        opened = list(router.traces.of("router.breaker_open"))
        unsure = False
        breaker = bool(opened) or any("circuit" in e.line for e in lines)
        if len(clients) >= 3 and len(clients) > 3 * len(servers):
            said = "counted clients' own errors (4xx) as failures and keeps every worker out; they are well."
            remedy = "restart the router; reject requests that are too long before it, or upgrade it"
        elif breaker:
            said = "keeps every worker out by its breakers, and the workers are well."
            remedy = (
                "send one real generation before traffic; --cb-timeout-duration-secs below clients' retries"
            )
        elif any(e.traces.health == "ok" or moves(e.traces) for e in facts.engines):
            said = "offers no worker although workers are well."
            remedy = "see how the router checks workers: path, port and timeout of its health check"
            unsure = True
        else:
            continue
        yield rule.finding(
            router.name,
            f"{router.name} {said}",
            [*quoted(lines, 2), *quoted(opened, 2), *quoted(clients, 2)],
            remedy,
            touches=[router.name, *engines],
            since=since(lines),
            hypotheses=_TESTS if unsure else [],
        )
