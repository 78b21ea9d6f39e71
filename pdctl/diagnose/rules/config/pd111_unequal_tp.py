"""PD111: this build does not take unequal TP sizes."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose import pairs
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule


@rule("PD111", "this build does not take unequal TP", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Prefill and decode are sharded differently, and the build refuses that or fails at the first contact.

    What it looks like: the pair never worked. The first request fails in the handshake: a refusal in words,
    an assertion on the peer's TP or PP size or on the shape of its KV, or NIXL_ERR_BACKEND in loadRemoteMD
    with different block counts. Restarting either side changes nothing.

    What else it could be: loadRemoteMD also fails after a one-sided restart, but then earlier transfers
    passed and a co-restart cures it. Builds that convert between TP sizes log no failure. Hybrid models may
    differ in the physical block although page sizes agree: PD116.

    What to do: give both the same --tp-size (vLLM: --tensor-parallel-size) and no pipeline, or take a build
    that supports the pair.
    """
    for prefill, decode in pairs.pairs(facts):
        found = pairs.of_kind(pairs.differences(prefill, decode), "sharding")
        refused = _of(prefill, decode, "pair.tp")
        counts = [e for e in _of(prefill, decode, "pair.blocks") if _unequal(e)]
        handshake = _of(prefill, decode, "pair.handshake", "nixl.backend_error")
        loaded = _of(prefill, decode, "peer.load")
        worked = max(prefill.traces.last_transfer_at or 0, decode.traces.last_transfer_at or 0)
        sized = [d for d in found if d.name in ("tp", "pp")]
        if not refused and not (sized and (handshake or counts or loaded) and not worked):
            continue
        if _of(prefill, decode, "pair.physical", "ucx.wrong_version", "nixl.hash_mismatch"):
            continue
        lines = [d.told(prefill.name, decode.name) for d in found]
        events = [*refused, *counts, *handshake]
        certain = bool(refused or counts) or bool(handshake and loaded)
        named = sized or [d for d in found if d.name in _ATTENTION]
        flags = "--tp-size, --dp-size and --enable-dp-attention" if named and not sized else "--tp-size"
        yield rule.finding(
            f"{prefill.name} -> {decode.name}",
            f"{prefill.name} and {decode.name} are sharded differently"
            + (f" ({', '.join(f'{d.name} {d.prefill} and {d.decode}' for d in named)})" if named else "")
            + ", and this build fails at their first contact.",
            [*lines, *quoted(events)],
            f"give both the same {flags}, then: pdctl restart --co CELL",
            touches=[prefill.name, decode.name],
            since=since(events),
            hypotheses=() if certain else _LIVE,
        )


_ATTENTION = ("dp", "enable_dp_attention")  # with which a rank has tp / dp of the attention
_LIVE = (
    Hypothesis("this build does not take unequal TP", "start both with the same TP and send one request"),
    Hypothesis("the peer's data is stale after a restart", "pdctl restart --co CELL, then send one request"),
)


def _of(prefill: EngineView, decode: EngineView, *signs: str) -> list[Event]:
    return [e for view in (prefill, decode) for e in view.traces.of(*signs)]


def _unequal(event: Event) -> bool:
    remote, local = event.values.get("remote"), event.values.get("local")
    return local is None or remote != local
