"""PD313: UCX_NET_DEVICES leaves out what NIXL needs."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

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
        traces = party.traces
        if any(traces.of("ucx.wrong_version", "nixl.no_plugin")):
            continue
        pinned = {n: traces.environ[n] for n in _LIST if traces.environ.get(n, "all") != "all"}
        devices = pinned.get("UCX_NET_DEVICES", "")
        bare = bool(devices) and not _has_loopback(devices)
        failed = list(traces.of("nixl.backend_error"))
        unknown = list(traces.of("ucx.no_device"))
        invalid = list(traces.of("verbs.bad_device"))
        no_path = list(traces.of("ucx.no_path"))
        begun = list(traces.of("nixl.creating"))
        later = any(traces.of("nixl.created", "peer.load", "nixl.registering"))
        at_start = bool(failed) and bool(begun or no_path or not later)
        if (
            not (unknown and (failed or no_path))
            and not (no_path and pinned)
            and not ((at_start and bare) or invalid)
        ):
            continue
        lines = [f"{party.name}: {n}={v}" for n, v in pinned.items()]
        was = traces.former.get("UCX_NET_DEVICES")
        if traces.former and was != devices and devices:
            lines.append(f"at the last good start UCX_NET_DEVICES was {was or 'not set'}")
        what = f"UCX_NET_DEVICES={devices}" if devices else ", ".join(f"{n}={v}" for n, v in pinned.items())
        reason = "names devices that are not there" if unknown else "leaves out loopback"
        if invalid:
            yield rule.finding(
                party.name,
                f"{party.name} was given RDMA devices that are not there: {invalid[0].values['what']}.",
                quoted(invalid),
                f"name devices that ibv_devices shows, then: pdctl restart {party.name}",
                since=since(invalid),
            )
            continue
        yield rule.finding(
            party.name,
            f"NIXL of {party.name} cannot start its backend: {what or 'the device list'} {reason}.",
            [*lines, *quoted([*unknown, *no_path, *failed])],
            f"set UCX_NET_DEVICES={devices or 'DEVICES'},lo (or unset it), then: pdctl restart {party.name}"
            if not unknown
            else f"name devices that ibv_devices shows, then: pdctl restart {party.name}",
            since=since([*no_path, *failed]),
        )


def _has_loopback(devices: str) -> bool:
    names = {d.strip().partition(":")[0] for d in devices.split(",")}
    return bool(names & {"lo", "all"}) or any(n.startswith(("eth", "en", "bond", "ib")) for n in names)
