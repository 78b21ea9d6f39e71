"""The picture of an engine of another kind, from its numbers under normal names; the rest is Missing."""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.adapters.endpoints import Server
from pdctl.adapters.picture import Engine, Pages, Queue, Timeout
from pdctl.facts.missing import Missing

# number (readings.names) -> the queue it is the depth of, in the order of a request's life.
QUEUES: dict[str, str] = {
    "queue_bootstrap": "bootstrap",
    "waiting": "waiting",
    "queue_inflight": "inflight",
    "queue_prealloc": "prealloc",
    "queue_transfer": "transfer",
    "waiting_kv": "waiting for KV",
    "queue_retracted": "retracted",
    "running": "running",
}
_OWN = {"queue_bootstrap": "prefill", "queue_inflight": "prefill", "queue_prealloc": "decode"}
_OWN |= {"queue_transfer": "decode", "queue_retracted": "decode", "waiting_kv": "decode"}


def queues(numbers: Mapping[str, float], role: str) -> dict[str, Queue]:
    """Depths; ages are what no other kind shows. A queue that only the other role has is left out."""
    return {
        queue: Queue(int(numbers[name]), None)
        for name, queue in QUEUES.items()
        if name in numbers and _OWN.get(name, role) in (role, "both")
    }


def pages(numbers: Mapping[str, float], page_size: int) -> Pages | Missing:
    """KV in pages of `page_size` tokens, from tokens or from a share in use."""
    total = numbers.get("kv_total_tokens")
    if not total:
        return Missing("it does not say how much KV it has")
    used = numbers.get("kv_used_tokens")
    if used is None and "kv_usage" in numbers:
        used = numbers["kv_usage"] * total
    if used is None:
        return Missing("it does not say how much KV is in use")
    whole = int(total) // page_size
    held = min(whole, -(-round(used) // page_size))
    return Pages(whole, whole - held, held, 0, page_size)


def engine(
    server: Server,
    now: float,
    why_not: tuple[str, ...],
    numbers: Mapping[str, float],
    page_size: int,
    timeouts: dict[str, Timeout],
    versions: dict[str, str],
) -> Engine:
    """`why_not` says why it takes no requests, () when it does."""
    unknown = Missing(f"{server.kind} does not show it")
    return Engine(
        kind=server.kind,
        instance=server.name,
        role=server.role,
        cell="",
        incarnation=unknown,
        pid=unknown,
        started_at=unknown,
        now=now,
        address=server.url.removeprefix("http://"),
        bootstrap=server.bootstrap,
        ready=not why_not,
        not_ready=why_not,
        status="not ready" if why_not else "ready",
        snapshot_age=unknown,
        progress=unknown,
        queues=queues(numbers, server.role),
        legs=unknown,
        peers=unknown,
        pages=pages(numbers, page_size),
        timeouts=timeouts,
        counters=unknown,
        dwell=unknown,
        armed=(),
        drill=False,
        legacy_bootstrap=False,
        fingerprint={},
        versions=versions,
        environ={},
        ranks=(),
    )
