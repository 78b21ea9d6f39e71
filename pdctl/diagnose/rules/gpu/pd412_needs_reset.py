"""PD412: the driver asks for a reset of a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed
from pdctl.diagnose.xids import SYSTEM, of, xids

_HARMLESS = "0x0 (None)"


@rule("PD412", "a GPU's controller halted", Severity.ERROR, [], echo_of=["PD411", "PD410", "PD413"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A GPU's system processor halted or does not answer, or the driver says which recovery the GPU needs.

    What it looks like: Xid 62, 119 or 120 (GSP, PMU), and Xid 154 "GPU recovery action changed from … to …":
    the new action is what the driver asks for, word for word. CUDA calls on that GPU hang or fail until then.

    What else it could be: a GPU off the bus (PD411), NVLink (PD410) or memory (PD413) cause a recovery action
    too, and are then the cause. Faults of an application (Xid 13, 31, 43) need no reset.

    What to do: what Xid 154 says: reset the GPU (nvidia-smi --gpu-reset -i N, with no process on it), or
    drain and reboot; if it repeats, another driver.
    """
    for host in facts.hosts:
        found = of(xids(host.traces.events), SYSTEM)
        gsp = [
            e
            for e in host.traces.events
            if e.sign == "gpu.gsp" and e.where not in {x.event.where for x in found}
        ]
        actions = [
            e for e in host.traces.events if e.sign == "gpu.recovery" and e.values["after"] != _HARMLESS
        ]
        asked = [e for e in host.traces.events if e.sign == "gpu.needs_reset"]
        shown = [g for g in host.traces.gpus if any(w in g.state for w in ("Reset", "Reboot", "Drain"))]
        if not found and not gsp and not actions and not asked and not shown:
            continue
        action = actions[-1].values["after"] if actions else shown[0].state if shown else ""
        numbers = listed(dict.fromkeys(x.told for x in found)) if found else "it must be reset"
        here = [p.name for p in facts.parties if p.member.host == host.name]
        events = [*(x.event for x in found), *gsp[:2], *actions, *asked]
        yield rule.finding(
            host.name,
            f"a GPU of {host.name} halted: {numbers}"
            + (f"; the driver asks for {action}." if action else "."),
            [*quoted(events, 4), *(f"{host.name} GPU {g.index}: {g.state}" for g in shown)],
            _remedy(action, host.name),
            touches=[host.name, *here],
            since=since(events),
        )


def _remedy(action: str, host: str) -> str:
    if "Reset" in action or not action:
        return f"stop the engines of {host}, then: nvidia-smi --gpu-reset -i N; if it repeats, another driver"
    return f"drain {host} and do what the driver asks: {action}"
