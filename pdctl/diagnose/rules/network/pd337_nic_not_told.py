"""PD337: a NIC was named, and not to the library that chooses it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rooms import Failure, Kind, failures
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_FLAG, _VARIABLE = "disaggregation_ib_device", "UCX_NET_DEVICES"


@rule("PD337", "NIXL was not told which NIC", Severity.ERROR, ["settings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The engine was given an RDMA device for Mooncake, and moves KV by NIXL, which asks UCX.

    What it looks like: --disaggregation-ib-device names devices, the transfer backend is nixl and
    UCX_NET_DEVICES is not set. UCX takes what it finds first: a bond for management, a rail that the peer is
    not on. Start, handshake and short tests on one host are well; between hosts every transfer waits until
    its timer ends it.

    What else it could be: a build that hands the flag on to UCX. Transfers that fail now and then have
    another cause: this one fails for all pairs that it concerns.

    What to do: set UCX_NET_DEVICES on prefill and decode to the devices that the flag names, with their
    ports (mlx5_0:1,mlx5_1:1), and start the pair again together.
    """
    mute = [e for e in facts.engines if _untold(e)]
    if not mute:
        return
    names = partners(facts, [e.name for e in mute])
    failed = [f for f in failures(facts, *names) if f.kind not in (Kind.ABORT, Kind.ECHO)]
    devices = _given(mute[0])
    ever = _worked(facts, names)
    apart = len({e.member.host for e in facts.engines if e.name in names}) > 1
    yield rule.finding(
        listed(e.name for e in mute),
        f"{listed(e.name for e in mute)} got {devices} by --disaggregation-ib-device, which NIXL does not "
        f"read: UCX chooses the NIC, and {_VARIABLE} is not set."
        + (" No transfer between the hosts works." if failed and apart and not ever else ""),
        [
            *(f"{e.name}: {_FLAG}={e.traces.settings[_FLAG]}, {_VARIABLE} not set" for e in mute),
            *_lines(failed),
        ],
        f"set {_VARIABLE}={','.join(f'{d}:1' for d in devices.split(','))} on both, then restart the pair",
        touches=names,
        since=since([f.event for f in failed]),
        severity=Severity.ERROR if failed else Severity.INFO,
        hypotheses=() if not failed or (apart and not ever) else _LIVE,
    )


_LIVE = (
    Hypothesis(
        "UCX takes a NIC that does not reach the peer", "UCX_LOG_LEVEL=info names it; set the variable"
    ),
    Hypothesis(
        "another fault of the path between them", "ib_write_bw between the hosts over the named device"
    ),
)


def _given(view: EngineView) -> str:
    return view.traces.settings[_FLAG]


def _untold(view: EngineView) -> bool:
    told = view.traces.settings
    shown = view.traces.environ
    return (
        told.get("transfer_backend") == "nixl"
        and bool(told.get(_FLAG))
        and bool(shown)
        and _VARIABLE not in shown
    )


def _worked(facts: Facts, names: list[str]) -> bool:
    """Anything shows that a transfer between them ended well."""
    told = any(t.ok for t in facts.tallies if t.prefill in names or t.decode in names)
    views = [e for e in facts.engines if e.name in names]
    counted = any(e.traces.last("transfers_total") or e.traces.last_transfer_at for e in views)
    generated = any(v > 0 for e in views if e.role == "decode" for _, v in e.traces.numbers("generation_tps"))
    return told or counted or generated


def _lines(failed: list[Failure]) -> list[str]:
    return quoted([f.event for f in failed])
