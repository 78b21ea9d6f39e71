"""PD210: the kernel ended a process for want of host memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts, Party
from pdctl.diagnose.lives import CLEAN, died, kernel_killed, of_its_end, signal_of
from pdctl.diagnose.progress import stall
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed
from pdctl.facts.missing import known

_OURS = re.compile(r"python|sglang|vllm|engine|worker|trtllm|ray|dynamo|router|mooncake|lmcache|pdctl", re.I)
_RECENT = 3600.0


def _recent(event: Event, at: float) -> bool:
    """Seconds since boot say no time of day: such a line counts."""
    return event.at is None or at - event.at < _RECENT


@rule("PD210", "ended by the OOM killer", Severity.ERROR, ["engine.reach"], echo_of=["PD710", "PD667"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A host or a container had no memory left, and the kernel killed a process of the fleet.

    What it looks like: exit code 137 (-9) without a last word in the log; the kernel log says "Killed
    process PID (name)", an orchestrator says OOMKilled. Peers see a connection that was reset.

    What else it could be: a SIGKILL of a person, a stop that took too long, or a probe leaves no such line
    (PD211). "CUDA out of memory" is GPU memory and ends with an exception. Memory that grew for hours is a
    leak (PD710); memory that was never enough is a limit.

    What to do: `dmesg -T | grep -i 'killed process'` shows the size at the end, and whether the limit was
    of the container (Memory cgroup) or of the host. Raise the limit, or lower host caches and worker
    counts.
    """
    for party in facts.parties:
        lines = kernel_killed(facts, party)
        own = [e for e in lines if e.party == party.name]
        if not own and (not lines or signal_of(party.traces) != 9):
            continue
        yield rule.finding(
            party.name,
            f"The kernel killed {party.name} for want of host memory.",
            quoted(lines),
            "dmesg -T | grep -i -A1 'oom-kill'; raise the memory limit or lower host caches",
            since=since(lines),
        )
    yield from _hosts(rule, facts)


def _hosts(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Kills on hosts of which nobody is known to have ended."""
    for host in facts.hosts:
        lines = [e for e in host.traces.events if e.sign == "kernel.oom_kill"]
        here = [p for p in facts.parties if p.member.host == host.name]
        lines = [e for e in lines if _OURS.search(e.values.get("name", "")) and _recent(e, facts.at)]
        lines = [e for e in lines if not here or any(of_its_end(p, e) for p in here)]
        if not lines or any(signal_of(p.traces) == 9 for p in here):
            continue
        severity = _gravity(here, lines)
        if severity is Severity.INFO:
            lines = _of_the_host(lines)
        if not lines:
            continue
        victims = listed(dict.fromkeys(e.values["name"] for e in lines if e.values.get("name")))
        yield rule.finding(
            host.name,
            f"The kernel of {host.name} killed {victims} for want of memory.",
            quoted(lines),
            "dmesg -T | grep -i -A1 'oom-kill'; raise the memory limit or lower host caches",
            touches=[host.name, *(p.name for p in here)],
            since=since(lines),
            severity=severity,
        )


def _of_the_host(lines: list[Event]) -> list[Event]:
    """Without kills by the limit of a group: beside engines that are well it was a group of others."""
    fenced = {e.values.get("pid") for e in lines if "emory cgroup" in e.line or "_MEMCG" in e.line}
    return [e for e in lines if e.values.get("pid") not in fenced]


def _gravity(here: list[Party], lines: list[Event]) -> Severity | None:
    """No more than a fact beside engines that are ready with all their ranks, or whose state has another
    reason: it was somebody else's process. A warning where nobody is known to be ill.
    """
    engines = [p for p in here if isinstance(p, EngineView)]
    if engines and all(_well(e) or _spared(e, lines) for e in engines):
        return Severity.INFO
    ill = [p for p in here if died(p) or stall(p.traces) or p.traces.health not in ("", "ok")]
    return None if any(not _spared(p, lines) for p in ill) else Severity.WARNING


def _well(engine: EngineView) -> bool:
    return engine.fresh and known(engine.state) and engine.state.ready


def _spared(party: Party, lines: list[Event]) -> bool:
    """No kill explains how it is: nobody started it, it ended cleanly, or somebody began its only life after
    the last of them.
    """
    unit = party.member.unit
    if not known(unit):
        return False
    if unit.state in ("absent", "stopped") and unit.exit in (None, *CLEAN):
        return True
    begun = unit.started_at or unit.since
    told = [e.at for e in lines if e.at is not None]
    asked = not unit.restarts and unit.started_by in ("pdctl", "hand")
    young = asked and unit.state in ("starting", "running")
    return young and begun is not None and len(told) == len(lines) and begun > max(told, default=begun)
