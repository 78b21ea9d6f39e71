"""GET /metrics: the /v1/state document as Prometheus families, read anew at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

State = dict[str, Any]
Rows = Iterable[tuple[tuple[str, ...], float]]


def gauge(name: str, text: str, rows: Rows, labels: tuple[str, ...] = ()) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def counter(name: str, text: str, rows: Rows, labels: tuple[str, ...] = ()) -> CounterMetricFamily:
    """`name` without its `_total`."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _one(number: float | None) -> Rows:
    return [] if number is None else [((), number)]


def _by(numbers: dict[str, float]) -> Rows:
    return [((key,), number) for key, number in numbers.items()]


def _queues(state: State) -> Iterator[Metric]:
    queues: dict[str, Any] = state["queues"]
    depth = {name: q["depth"] for name, q in queues.items()}
    oldest = {name: q["oldest_age_s"] or 0.0 for name, q in queues.items()}
    yield gauge("pd_queue_depth", "Requests in a stage.", _by(depth), ("queue",))
    yield gauge("pd_queue_oldest_age_seconds", "Age of its oldest request.", _by(oldest), ("queue",))
    inflight = _one(oldest.get("inflight", 0.0))
    yield gauge("pd_oldest_inflight_age_seconds", "Longest wait for a KV handover.", inflight)


def _pages(state: State) -> Iterator[Metric]:
    pages = {name: state["pages"][name] for name in ("free", "held", "quarantined")}
    yield gauge("pd_pages", "KV pages by owner.", _by(pages), ("state",))
    yield gauge("pd_pages_cached", "Free KV pages that hold a prefix.", _one(state["pages"].get("cached")))
    yield gauge("pd_pages_capacity", "KV pages of the pool.", _one(state["pages"]["total"]))


def _progress(state: State) -> Iterator[Metric]:
    progress = state["progress"]
    yield counter("pd_steps", "Forward steps.", _one(progress["steps"]))
    yield counter("pd_tokens_generated", "Tokens sampled.", _one(progress["tokens_generated"]))
    yield counter("pd_tokens_prefilled", "Prompt tokens computed.", _one(progress["tokens_prefilled"]))
    c = state["counters"]
    hit = c.get("prefix_tokens_hit", 0)
    prefix = {"hit": hit, "miss": c.get("prefix_tokens", 0) - hit}
    yield counter(
        "pd_prefix_tokens", "Prompt tokens by whether their KV was there.", _by(prefix), ("result",)
    )
    yield gauge("pd_last_step_age_seconds", "Since the last step.", _one(progress["last_step_age_s"]))
    yield gauge("pd_loop_age_seconds", "Since the scheduler loop turned.", _one(progress["loop_age_s"]))
    yield gauge("pd_snapshot_age_seconds", "Since the leader published.", _one(state["snapshot_age_s"]))


def _requests(state: State) -> Iterator[Metric]:
    c = state["counters"]
    yield counter("pd_requests_received", "Requests taken.", _one(c.get("requests_received")))
    yield counter("pd_requests_done", "Requests served.", _one(c.get("requests_done")))
    yield counter("pd_requests_aborted", "Requests ended early.", _one(c.get("requests_aborted")))
    yield counter("pd_requests_failed", "Requests failed.", _by(c.get("requests_failed", {})), ("code",))
    yield counter("pd_deadlines_fired", "Deadlines that fired.", _by(c.get("deadlines_fired", {})), ("name",))
    yield counter("pd_late_completions", "Completions of ended rooms.", _one(c.get("late_completions")))
    yield counter("pd_preemptions", "Requests put back for pages.", _one(c.get("preemptions")))


def _transfers(state: State) -> Iterator[Metric]:
    c, peers = state["counters"], state["peers"]
    ended = {"ok": c.get("transfers_ok", 0), "failed": c.get("transfers_failed", 0)}
    yield counter("pd_transfers", "KV transfers ended.", _by(ended), ("result",))
    checked = {"ok": c.get("kv_verified", 0), "corrupt": c.get("kv_corrupt", 0)}
    yield counter("pd_kv_checked", "Rooms whose KV was compared by checksum.", _by(checked), ("result",))
    yield counter("pd_transfer_bytes", "KV bytes moved.", _one(c.get("transfer_bytes")))
    yield counter("pd_transfer_seconds", "Time spent moving KV.", _one(c.get("transfer_seconds")))
    yield gauge("pd_peers_known", "Peers ever seen.", _one(len(peers)))
    yield gauge("pd_peers_linked", "Peers with a live link.", _one(sum(bool(p["linked"]) for p in peers)))
    dwell = state["dwell"]
    histogram = HistogramMetricFamily("pd_inflight_dwell_seconds", "Prefill done until KV handed over.")
    bounds = [floatToGoString(le) for le in dwell["le"]]
    buckets = [*zip(bounds, dwell["counts"], strict=False), ("+Inf", dwell["total"])]
    histogram.add_metric([], buckets, dwell["sum"])
    yield histogram


def _identity(state: State) -> Iterator[Metric]:
    names = ("instance", "role", "cell", "incarnation", "status")
    labels = {name: str(state[name]) for name in names} | {
        "version": str(state["versions"].get("engine", ""))
    }
    info = InfoMetricFamily("pd_engine", "Who this is.")
    info.add_metric([], labels)
    yield info
    yield gauge("pd_ready", "1 when it takes requests.", _one(float(bool(state["ready"]))))
    yield gauge("pd_start_time_seconds", "Unix time of the start.", _one(state["started_at"]))


class StateCollector(Collector):
    """Families of the state that `read` returns."""

    def __init__(self, read: Callable[[], State]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        state = self._read()
        for part in (_identity, _progress, _queues, _requests, _transfers, _pages):
            yield from part(state)

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead of time: registering must not read the state of an engine that is starting."""
        return ()


def registry_of(read: Callable[[], State]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StateCollector(read))
    return registry
