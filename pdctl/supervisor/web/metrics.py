"""GET /metrics: what the supervisor sees and does, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pdctl.supervisor.observation import EngineLook, Observation
from pdctl.supervisor.web.sources import Sources

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _Collector:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        live = self._sources.live
        look, standing = live.look, live.standing
        yield GaugeMetricFamily("pdctl_look_age_seconds", "Since the newest look began.", live.age)
        paused = GaugeMetricFamily("pdctl_paused", "1 while a person has paused it.", bool(standing.paused))
        yield paused
        states = GaugeMetricFamily(
            "pdctl_cell_state", "1 for the state of each cell.", labels=["cell", "state"]
        )
        for cell, state in standing.cells.items():
            states.add_metric([cell, state], 1)
        yield states
        count, done = self._sources.counts()
        yield GaugeMetricFamily("pdctl_incidents_open", "Incidents that are open.", count)
        actions = GaugeMetricFamily(
            "pdctl_actions_kept", "Actions in the record.", labels=["action", "outcome"]
        )
        for names, number in done.items():
            actions.add_metric(list(names), number)
        yield actions
        if look is not None:
            yield from _of_look(look)


def _of_look(look: Observation) -> Iterator[Metric]:
    yield CounterMetricFamily("pdctl_looks", "Looks since this supervisor's start.", look.number)
    yield GaugeMetricFamily("pdctl_look_seconds", "What the newest look took.", look.seconds)
    yield from _engines(look.engines)
    reachable = GaugeMetricFamily("pdctl_host_reachable", "Whether a host answered.", labels=["host"])
    for host in look.hosts:
        reachable.add_metric([host.name], host.reachable)
    yield reachable
    if look.router is not None:
        yield GaugeMetricFamily("pdctl_router_answers", "Whether the router answered.", look.router.answered)
        yield GaugeMetricFamily("pdctl_router_held", "Requests held at admission.", look.router.held)
        if look.router.size is not None:
            yield GaugeMetricFamily("pdctl_router_requests", "Requests that it counts.", look.router.size)
            oldest = look.router.oldest or 0.0
            yield GaugeMetricFamily("pdctl_router_oldest_seconds", "Age of the oldest.", oldest)


def _engines(engines: tuple[EngineLook, ...]) -> Iterator[Metric]:
    labels = ["engine", "cell", "role"]

    def gauge(name: str, help: str, extra: str = "") -> GaugeMetricFamily:
        return GaugeMetricFamily(f"pdctl_engine_{name}", help, labels=[*labels, extra] if extra else labels)

    ready = gauge("ready", "1 while it answers and says that it is ready.")
    depth = gauge("queue_depth", "Requests in a queue.", "queue")
    age = gauge("queue_oldest_seconds", "Age of the oldest request in a queue.", "queue")
    pages = gauge("kv_pages", "KV pages by who has them.", "owner")
    for e in engines:
        names = [e.name, e.cell, e.role]
        ready.add_metric(names, e.answered and e.ready)
        for name, queue in e.queues.items():
            depth.add_metric([*names, name], queue.depth)
            if queue.oldest_age is not None:
                age.add_metric([*names, name], queue.oldest_age)
        if e.pages is not None:
            for owner in ("free", "held", "quarantined"):
                pages.add_metric([*names, owner], getattr(e.pages, owner))
    yield from (ready, depth, age, pages)


def exposition(sources: Sources) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(sources))
    return generate_latest(registry)
