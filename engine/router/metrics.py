"""GET /metrics of the router."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.router.core import Router

STAGES = ("admitted", "held", "dispatched", "streaming")


def _requests(router: Router, now: float) -> Iterator[Metric]:
    ledger = router.ledger
    live = GaugeMetricFamily("pd_router_live", "Live requests by stage.", labels=["stage"])
    oldest = GaugeMetricFamily(
        "pd_router_oldest_age_seconds", "Age of the oldest of a stage.", labels=["stage"]
    )
    for stage in STAGES:
        ages = [now - e.admitted_at for e in ledger.live.values() if e.stage == stage]
        live.add_metric([stage], len(ages))
        oldest.add_metric([stage], max(ages, default=0.0))
    yield live
    yield oldest
    yield CounterMetricFamily("pd_router_requests", "Requests admitted.", value=ledger.total)
    ended = CounterMetricFamily("pd_router_ended", "Requests ended.", labels=["how", "code"])
    ended.add_metric(["done", ""], ledger.done)
    ended.add_metric(["aborted", ""], ledger.aborted)
    for code, count in ledger.failed.items():
        ended.add_metric(["failed", code], count)
    yield ended
    yield CounterMetricFamily("pd_router_retries", "Tries after the first one.", value=ledger.retries)
    yield CounterMetricFamily("pd_router_resumed", "Streams that went on elsewhere.", value=ledger.resumed)
    yield CounterMetricFamily("pd_router_held", "Requests that were held.", value=ledger.held_total)


def _engines(router: Router) -> Iterator[Metric]:
    labels = ["engine", "role", "cell"]
    ready = GaugeMetricFamily("pd_router_engine_ready", "1 when it may be chosen.", labels=labels)
    active = GaugeMetricFamily("pd_router_engine_active", "Legs it has open.", labels=labels)
    for engine in router.pairs.engines.values():
        ready.add_metric([engine.instance, engine.role, engine.cell], float(engine.usable))
        active.add_metric([engine.instance, engine.role, engine.cell], engine.active)
    yield ready
    yield active


class RouterCollector(Collector):
    def __init__(self, router: Router, clock: Callable[[], float]) -> None:
        self._router = router
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        router = self._router
        info = InfoMetricFamily("pd_router", "Who this is.")
        labels = {"instance": router.config.instance, "role": "router", "incarnation": router.incarnation}
        info.add_metric([], labels)
        yield info
        held = float(router.admission.held_since is not None)
        yield GaugeMetricFamily("pd_router_admission_held", "1 while admissions are held.", value=held)
        yield from _requests(router, self._clock())
        yield from _engines(router)

    def describe(self) -> Iterable[Metric]:
        return ()


def router_registry(router: Router, clock: Callable[[], float]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RouterCollector(router, clock))
    return registry
