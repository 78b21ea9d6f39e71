"""PD313: UCX_NET_DEVICES leaves out what NIXL needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.progress import moves
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_LIST = ("UCX_NET_DEVICES", "UCX_TLS")


@rule("PD313", "UCX's device list leaves out what NIXL needs", Severity.ERROR, ["logs"], echo_of=["PD327"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A pin of devices or transports leaves NIXL without a way, to itself or to its peers.

    What it looks like: NIXL_ERR_BACKEND in createBackend at the start, before any peer is met, with
    UCX_NET_DEVICES naming RDMA devices alone: UCX applies the list to tcp and loopback too, and NIXL opens an
    endpoint to itself. Or UCX warns that a named device is not available, or finds no transport to the peer.

    What else it could be: a plugin that is not found says so (PD317), another UCX names versions (PD310),
    memory that cannot be registered fails later (PD323).

    What to do: keep loopback in the list (UCX_NET_DEVICES=mlx5_0:1,lo), name devices that `ibv_devices`
    shows, or take the pin away.
    """
    for party in facts.parties:
        if any(party.traces.of("ucx.wrong_version", "nixl.no_plugin")):
            continue
        if invalid := list(party.traces.of("verbs.bad_device")):
            yield rule.finding(
                party.name,
                f"{party.name} was given RDMA devices that are not there: {invalid[0].values['what']}.",
                quoted(invalid),
                f"name devices that ibv_devices shows, then: pdctl restart {party.name}",
                since=since(invalid),
            )
        else:
            yield from _pinned(rule, party)


def _pinned(rule: Rule, party: Party) -> Iterator[Finding]:
    traces = party.traces
    pins = {n: traces.environ[n] for n in _LIST if traces.environ.get(n, "all") != "all"}
    devices = pins.get("UCX_NET_DEVICES", "")
    failed = list(traces.of("nixl.backend_error"))
    unknown = list(traces.of("ucx.no_device"))
    no_path = list(traces.of("ucx.no_path"))
    later = any(traces.of("nixl.created", "peer.load", "nixl.registering", "nixl.posting"))
    at_start = bool(failed) and (any(traces.of("nixl.creating")) or bool(no_path) or not later)
    bare = bool(devices) and at_start and not _has_loopback(devices)
    none = _none_left(devices, unknown) and not moves(traces)
    if not (unknown and (failed or no_path or none)) and not (no_path and pins) and not bare:
        return
    lines = [f"{party.name}: {n}={v}" for n, v in pins.items()]
    was = traces.former.get("UCX_NET_DEVICES", "not set")
    added = bool(traces.former) and was != devices
    lines += [f"at the last good start UCX_NET_DEVICES was {was}"] if added else []
    told = ", ".join(f"{n}={v}" for n, v in pins.items())
    if unknown:
        have = unknown[0].values.get("have", "")
        seen = re.search(r"'(?:mlx|bnxt|efa|irdma|roce|ib|rdma)", have) is not None
        why = "names devices that are not there" + ("" if seen else ": it sees no RDMA device at all")
        remedy = "name devices that ibv_devices shows" if seen else _NO_RDMA
    elif not devices and no_path:
        why = "leaves no transport to " + (
            no_path[0].values.get("peer", "").strip("<> ") or "the peer or GPU"
        )
        remedy = f"take {' and '.join(pins)} away"
    else:
        why, remedy = "leaves out loopback", f"set UCX_NET_DEVICES={devices or 'DEVICES'},lo"
    yield rule.finding(
        party.name,
        f"UCX of {party.name} cannot do its work: {told} {why}.",
        [*lines, *quoted([*unknown, *no_path, *failed])],
        f"{remedy}, then: pdctl restart {party.name}",
        since=since([*no_path, *failed]),
        hypotheses=() if added or unknown or no_path else _LIVE,
    )


_LIVE = (
    Hypothesis(
        "the device list leaves out loopback", "add lo to UCX_NET_DEVICES (or unset it) and start it again"
    ),
    Hypothesis("a system UCX shadows NIXL's own", "grep libucp /proc/PID/maps"),
)


_NO_RDMA = (
    "give its container the RDMA devices (--device=/dev/infiniband) and their user libraries (ibv_devices)"
)


def _none_left(devices: str, unknown: list[Event]) -> bool:
    """Every device that it was pinned to is one of those that UCX does not find."""
    missing = set(re.findall(r"[\w.:-]+", " ".join(e.values["what"] for e in unknown)))
    asked = {d.strip() for d in devices.split(",") if d.strip()}
    return bool(asked) and asked <= missing | {m.partition(":")[0] for m in missing}


def _has_loopback(devices: str) -> bool:
    names = {d.strip().partition(":")[0] for d in devices.split(",")}
    return bool(names & {"lo", "all"}) or any(n.startswith(("eth", "en", "bond", "ib")) for n in names)
