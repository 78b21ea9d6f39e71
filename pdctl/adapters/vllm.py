"""vLLM: its read-only endpoints, and their answers as a picture; pure.

GET /health says that its engine core lives, and stays 200 while a transfer hangs: a request that waits for
KV may be counted nowhere, and every transfer metric speaks of transfers that ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pdctl.adapters import outline
from pdctl.adapters.endpoints import UNASKED, Answers, Endpoint, Server, answered
from pdctl.adapters.picture import Engine, Reach, Sample
from pdctl.adapters.readings.scrape import readings, samples
from pdctl.adapters.timers import timers
from pdctl.facts.missing import Missing


def endpoints(server: Server) -> tuple[Endpoint, ...]:
    url = server.url
    return (
        Endpoint("health", f"{url}/health", plain=True, once=True),
        Endpoint("metrics", f"{url}/metrics", plain=True),
        Endpoint("version", f"{url}/version", once=True),
        Endpoint("models", f"{url}/v1/models", once=True),
    )


def sample(
    server: Server,
    answers: Answers,
    settings: Mapping[str, str],
    environ: Mapping[str, str],
    now: float,
) -> Sample[Engine]:
    """`settings` are its launch flags under normal names, which none of its endpoints shows."""
    health, metrics = answers.get("health", UNASKED), answers.get("metrics", UNASKED)
    seconds = max((a.seconds for a in answers.values()), default=0.0)
    if not answered(answers):
        return Sample(health.reach, Missing(f"{health.reach}: {health.detail}"), health.detail, seconds)
    numbers: dict[str, float] = {}
    for reading in readings(metrics.text, now):
        numbers |= {} if reading.rank else reading.numbers
    blocks, size = _cache(metrics.text)
    if blocks and "kv_total_tokens" not in numbers:
        numbers["kv_total_tokens"] = float(blocks * size)
    born = [s.value for s in samples(metrics.text) if s.name == "process_start_time_seconds"]
    why = () if health.reach is Reach.OK else (f"/health: {health.detail or health.reach}",)
    version = (answers.get("version", UNASKED).body or {}).get("version")
    picture = outline.engine(
        server,
        now,
        why,
        numbers,
        size,
        timers("vllm", server.role, settings, environ),
        {"vllm": str(version)} if version else {},
    )
    if born:
        picture = replace(picture, started_at=max(born))
    return Sample(Reach.OK, picture, "; ".join(why), seconds)


def _cache(metrics: str) -> tuple[int, int]:
    """(KV blocks, tokens of a block), of all engines together; (0, 1) when it does not say."""
    blocks, size = 0, 1
    for found in samples(metrics):
        if found.name == "vllm:cache_config_info":
            count, tokens = (found.labels.get(k, "") for k in ("num_gpu_blocks", "block_size"))
            blocks += int(count) if count.isdigit() else 0
            size = int(tokens) if tokens.isdigit() and int(tokens) else size
    return blocks, size
