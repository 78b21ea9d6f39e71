"""PD411: a GPU is gone."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, HostView, Party
from pdctl.diagnose.lives import died
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed
from pdctl.diagnose.xids import LOST, of, xids


@rule("PD411", "a GPU fell off the bus", Severity.ERROR, [])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The driver cannot reach a GPU any more: a matter of PCIe, power or heat.

    What it looks like: Xid 79 "GPU has fallen off the bus", one GPU stops reporting while the others go on,
    nvidia-smi shows it as ERR! or lost or shows fewer GPUs than there were; nvidia-smi -r is impossible.

    What else it could be: an Xid of the same GPU right before (62, 119, 154) names the driver or its
    micro-controller instead: PD412. A GPU that a container was not given was never there.

    What to do: drain the node and switch it off and on (a cold reboot); replace the GPU if it comes again.
    """
    for host in facts.hosts:
        here = [p for p in facts.parties if p.member.host == host.name]
        found = of(xids(host.traces.events), LOST)
        events: list[Event] = [x.event for x in found]
        events += [e for e in host.traces.events if e.sign == "gpu.lost"]
        events += [e for p in here for e in p.traces.of("gpu.lost")]
        events = list({e.where: e for e in reversed(events)}.values())[::-1]
        states = [
            f"{host.name} GPU {g.index}: {g.state}" for g in host.traces.gpus if g.state in ("ERR!", "lost")
        ]
        if not events and not states:
            yield from _fewer(rule, host, here)
            continue
        devices = list(dict.fromkeys(x.device for x in found if x.device))
        yield rule.finding(
            host.name,
            f"a GPU of {host.name}{f' ({listed(devices)})' if devices else ''} is lost"
            + (": it has fallen off the bus (Xid 79)." if devices else ": the driver cannot reach it."),
            [*states, *quoted(events)],
            f"drain {host.name}, power it off and on, replace the GPU if it happens again",
            touches=[host.name, *(p.name for p in here)],
            since=since(events),
        )


def _fewer(rule: Rule, host: HostView, here: list[Party]) -> Iterator[Finding]:
    """A host that shows fewer GPUs than a server on it needs."""
    shown = len({g.index for g in host.traces.gpus})
    for party in here:
        told = party.traces.settings
        sizes = [told.get(n, "1") for n in ("tp", "pp")]
        needed = int(sizes[0]) * int(sizes[1]) if all(s.isdigit() for s in sizes) else 1
        ordinal = list(party.traces.of("gpu.ordinal"))
        if told.get("nnodes", "1") != "1" or not shown or shown >= needed or not (ordinal or died(party)):
            continue
        yield rule.finding(
            party.name,
            f"{host.name} shows {shown} GPUs and {party.name} needs {needed}: one is gone or hidden.",
            [f"{host.name}: nvidia-smi shows {shown} GPUs", *quoted(ordinal)],
            f"journalctl -k | grep -i xid on {host.name}; nvidia-smi -L",
            touches=[host.name, party.name],
            since=since(ordinal),
            hypotheses=(
                Hypothesis(
                    "a GPU fell off the bus",
                    f"journalctl -k | grep -i xid on {host.name}; lspci | grep -i nvidia",
                ),
                Hypothesis(
                    "CUDA_VISIBLE_DEVICES or the container hides it",
                    "tr '\\0' '\\n' < /proc/PID/environ | grep VISIBLE",
                ),
            ),
        )
