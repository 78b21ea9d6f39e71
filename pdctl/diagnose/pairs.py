"""In what a prefill and a decode were started differently, by what is in effect; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pdctl.adapters.traces import Traces
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.words import listed

UNSET = "not set"
# What KV is made of: a difference breaks or spoils a transfer, where the build does not convert.
GEOMETRY = ("page_size", "kv_dtype", "dtype", "kv_cache_layout", "VLLM_KV_CACHE_LAYOUT")
SHARDING = ("tp", "pp", "dp", "dcp", "ep", "enable_dp_attention", "moe_dense_tp_size")
MODEL = (
    "model",
    "revision",
    "code_revision",
    "quantization",
    "hf_overrides",
    "rope_scaling",
    "max_lora_rank",
)
_SPECULATIVE = re.compile(r"^speculative")
_CONNECTOR = re.compile(
    r"^(?:kv_transfer_config\.|transfer_backend$|attention_backend$|enable_hybrid|disable_hybrid|MOONCAKE_PROTOCOL$|"
    r"MC_FORCE_TCP$|MC_USE_TCP$)"
)
# What each side has of its own.
_OWN = re.compile(
    r"kv_role|kv_rank|kv_port|kv_ip|engine_id|kv_parallel_size|kv_buffer|_port$|host|proxy|module_path|url|seed",
    re.IGNORECASE,
)
# A Hugging Face cache names the revision in its path.
_CACHED = re.compile(r"--(?P<name>[^/]+)/snapshots/(?P<revision>\w+)")
_TUNING = re.compile(r"^(?:UCX_|NIXL_|NCCL_|MC_|MOONCAKE_|VLLM_NIXL|VLLM_KV|SGLANG_DISAGG|GLOO_|TRTLLM_)")


@dataclass(frozen=True)
class Difference:
    name: str
    prefill: str
    decode: str

    def told(self, prefill: str, decode: str) -> str:
        return f"{self.name}: {prefill} {self.prefill}, {decode} {self.decode}"


def pairs(facts: Facts) -> Iterator[tuple[EngineView, EngineView]]:
    """Every prefill and decode that exchange KV; also where nobody said which cell they are of."""
    yield from facts.edges()


def partners(facts: Facts, names: Iterable[str]) -> list[str]:
    """`names` and the engines that exchange KV with them: those see the failure too."""
    first = set(names)
    seen = [(p.name, d.name) for p, d in pairs(facts) if first & {p.name, d.name}]
    return list(dict.fromkeys([*first, *(name for pair in seen for name in pair)]))


def differences(prefill: EngineView, decode: EngineView) -> list[Difference]:
    """Everything of geometry, model, speculation, connector and transport that is not the same."""
    return [d for d in compared(prefill.traces, decode.traces) if kind(d.name)]


def compared(prefill: Traces, decode: Traces) -> list[Difference]:
    """All settings and transport variables that are not the same. What one side does not set is UNSET, and
    counts only where that side's settings (or variables) were shown at all.
    """
    found: list[Difference] = []
    for p, d in ((prefill.settings, decode.settings), (_tuning(prefill), _tuning(decode))):
        if not p or not d:
            continue
        for name in dict.fromkeys([*p, *d]):
            left, right = _plain(name, p.get(name, UNSET)), _plain(name, d.get(name, UNSET))
            if left != right and not _OWN.search(name):
                found.append(Difference(name, left, right))
    return found


def kind(name: str) -> str:
    """geometry, sharding, model, speculative, connector or transport; "" for what pairs may differ in."""
    if name in GEOMETRY:
        return "geometry"
    if name in SHARDING:
        return "sharding"
    if name in MODEL:
        return "model"
    if _SPECULATIVE.match(name):
        return "speculative"
    if _CONNECTOR.match(name):
        return "connector"
    return "transport" if _TUNING.match(name) else ""


def of_kind(found: list[Difference], *kinds: str) -> list[Difference]:
    return [d for d in found if kind(d.name) in kinds]


def named(found: list[Difference]) -> str:
    return listed(d.name for d in found)


def versions(one: EngineView, other: EngineView) -> list[Difference]:
    """Versions of engine and libraries that both sides show and that differ."""
    left = _versions(one.traces)
    right = _versions(other.traces)
    return [Difference(n, left[n], right[n]) for n in left if n in right and left[n] != right[n]]


def _versions(traces: Traces) -> dict[str, str]:
    return {**({traces.kind or "engine": traces.version} if traces.version else {}), **traces.versions}


def _tuning(traces: Traces) -> dict[str, str]:
    return {n: v for n, v in traces.environ.items() if _TUNING.match(n)} | (
        {"": ""} if traces.environ else {}
    )


def _plain(name: str, value: str) -> str:
    """Models by the name of their folder: hosts mount the same one at different places."""
    if name == "model":
        cached = _CACHED.search(value)
        return cached["name"] if cached else value.rstrip("/").rpartition("/")[2]
    return "auto" if name in ("kv_dtype", "dtype") and value == UNSET else value


def revision(traces: Traces) -> str:
    """Which revision of its weights a server loaded, as far as it shows."""
    cached = _CACHED.search(traces.settings.get("model", ""))
    told = traces.versions.get("model") or traces.versions.get("weights") or traces.settings.get("revision")
    return told or (cached["revision"] if cached else "")
