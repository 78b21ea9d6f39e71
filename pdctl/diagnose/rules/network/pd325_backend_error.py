"""PD325: NIXL's backend fails and no line says why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.adapters.traces import Event, Traces
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import before, past, said_in
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

NAMED = (
    "PD310",
    "PD313",
    "PD315",
    "PD316",
    "PD317",
    "PD318",
    "PD320",
    "PD321",
    "PD323",
    "PD337",
    "PD338",
    "PD333",
    "PD111",
    "PD116",
    "PD112",
    "PD501",
    "PD510",
    "PD511",
    "PD810",
)


@rule("PD325", "NIXL's backend fails without a reason", Severity.ERROR, ["logs"], echo_of=NAMED)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """NIXL_ERR_BACKEND: a loaded backend failed, and the log has no line that names the cause.

    What it looks like: nixlBackendError in createBackend, registerMem, loadRemoteMD or a transfer.

    What else it could be: in createBackend the device list or the installed UCX; in registerMem locked memory
    or GPU memory that UCX does not know; in loadRemoteMD a peer that does not fit or came back; in a transfer
    the network. Each has its own rule where its line is there.

    What to do: run the engine with UCX_LOG_LEVEL=info and NIXL_LOG_LEVEL=debug and read what stands before
    it.
    """
    for party in facts.parties:
        events = [e for e in party.traces.of("nixl.backend_error") if not past(party, e)]
        if not events:
            continue
        traces = party.traces
        stage = next(
            (
                name
                for name, signs in (
                    ("postXferReq", ("nixl.posting",)),
                    ("the peer's metadata", ("nixl.bad_metadata",)),
                    ("loadRemoteMD", ("peer.load",)),
                    ("registerMem", ("nixl.registering",)),
                    ("createBackend", ("nixl.creating",)),
                )
                if any(traces.of(*signs))
            ),
            "",
        )
        above = [e for e in before(party, events[0]) if e.where not in {b.where for b in events}]
        live = _pinned(traces) + _LIVE[stage] if stage == "postXferReq" else _LIVE[stage]
        if traces.environ.get("UCX_NET_DEVICES", "all") == "all" and _LIST in live:
            live = tuple(_ALL if h is _LIST else h for h in live)
        yield rule.finding(
            party.name,
            f"NIXL's backend of {party.name} fails{f' in {stage}' if stage else ''}"
            + (f"; before that: {said_in(above[0])}." if above else "; no line says why."),
            [*quoted(above), *quoted(events)],
            "run it with UCX_LOG_LEVEL=info NIXL_LOG_LEVEL=debug and read what stands before the error",
            since=since(events),
            hypotheses=[*_said(above), *live][:3],
        )


def _said(above: Sequence[Event]) -> list[Hypothesis]:
    if not above:
        return []
    return [
        Hypothesis(
            f"what the library says first: “{said_in(above[0])}”",
            "search for that line with the versions of UCX and NIXL; it comes before NIXL's own error",
        )
    ]


_UCX = Hypothesis("a system UCX shadows NIXL's own", "grep libucp /proc/PID/maps")
_LIST = Hypothesis("UCX's device list leaves out a way", "start it without UCX_NET_DEVICES and UCX_TLS")
_ALL = Hypothesis(
    "UCX opens every NIC that it sees, also those for management or another network",
    "ibv_devinfo on that host; start it with UCX_NET_DEVICES=DEVICE:1 of the GPU's own NIC",
)
_LOCK = Hypothesis("locked memory is limited", "grep 'locked memory' /proc/PID/limits")
_FIT = Hypothesis("the two sides do not fit (TP, layout, version)", "compare both start lines; try equal TP")
_STALE = Hypothesis(
    "the peer came back and its old data is used", "pdctl restart --co CELL, then one request"
)
_NET = Hypothesis("the network between them", "ucx_perftest between the hosts with the same UCX variables")
_CUDA = Hypothesis("UCX does not find its CUDA modules", "ucx_info -d | grep cuda; UCX_MODULE_DIR")
_KIND = Hypothesis(
    "the two agents use different backends or plugins",
    "compare NIXL_BACKEND, TRTLLM_NIXL_KVCACHE_BACKEND and the NIXL version on both sides",
)


def _pinned(traces: Traces) -> tuple[Hypothesis, ...]:
    """A pin of transports is the first thing to take away."""
    pin = traces.environ.get("UCX_TLS", "all")
    return (
        ()
        if pin == "all"
        else (Hypothesis(f"UCX_TLS={pin} leaves out the way that is needed", "unset UCX_TLS"),)
    )


_LIVE: dict[str, tuple[Hypothesis, ...]] = {
    "createBackend": (_LIST, _UCX),
    "registerMem": (_CUDA, _UCX, _LOCK),
    "postXferReq": (_NET, _STALE),
    "the peer's metadata": (_KIND, _FIT),
    "loadRemoteMD": (_STALE, _FIT),
    "": (_UCX, _LIST, _NET),
}
