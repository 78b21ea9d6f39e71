"""PD332: UCX talks over an interface that leads nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_BRIDGE = re.compile(
    r"tcp/(?P<name>docker\w*|virbr\w*|cni\w*|br-\w+|veth\w*|lxc\w*|flannel\S*|cali\w*|podman\w*)"
)
_FAILED = (
    "ucx.endpoint",
    "nixl.",
    "net.timed_out",
    "room.kv_failed",
    "sglang.room_failed",
    "vllm.transfer_failed",
)


@rule("PD332", "UCX uses a local bridge", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """UCX chose docker0 or another bridge of the host for its connection to a peer on another host.

    What it looks like: lanes over tcp/docker0 (or virbr0, cni0) in UCX's log; connects go to 172.17.0.1,
    which is each host itself; transfers hang or end in endpoint errors although a real network is there.

    What else it could be: TCP over a real interface is only slow (PD314). A bridge that joins two containers
    of one host is right for them.

    What to do: name the interfaces: UCX_NET_DEVICES=mlx5_0:1,eth0,lo.
    """
    lanes = [(e, m["name"]) for e in facts.events("ucx.lanes") if (m := _BRIDGE.search(e.values["lanes"]))]
    hosts = {p.member.host for p in facts.parties}
    if not lanes:
        return
    events = [e for e, _ in lanes]
    failed = [e for e in facts.events(*_FAILED) if e.party in writers(events) and e.sign != "nixl.created"]
    hurt = bool(failed) or any(p.traces.health not in ("", "ok") for p in facts.parties)
    names = listed(dict.fromkeys(name for _, name in lanes))
    yield rule.finding(
        listed(writers(events)),
        f"UCX of {listed(writers(events))} talks to its peer over {names}, which does not leave the host.",
        quoted([*events, *failed]),
        "set UCX_NET_DEVICES to the real interfaces (mlx5_0:1,eth0,lo), then restart both",
        touches=partners(facts, writers(events)),
        since=since(events),
        severity=Severity.ERROR if hurt and len(hosts) > 1 else Severity.WARNING,
    )
