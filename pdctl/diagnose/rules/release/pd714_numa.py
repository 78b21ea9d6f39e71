"""PD714: NUMA binding that does nothing, or harms."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_CPUS = re.compile(r"^Cpus_allowed_list:\s*(?P<list>\S+)", re.MULTILINE)


def _asked(party: Party) -> bool:
    return party.traces.settings.get("numa_bind", "") == "true" or any(
        name.startswith("numa") and value not in ("", "false", "none")
        for name, value in party.traces.settings.items()
    )


def _cpus(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return found


def _unbound(facts: Facts, party: Party) -> str:
    """Its allowed CPUs as a line, when they are all of the host's."""
    allowed = _CPUS.search(party.traces.files.get("status", ""))
    host = facts.host(party.member.host)
    cores = host.traces.numbers.get("cores") if host else None
    if allowed is None or not cores or len(_cpus(allowed["list"])) < cores:
        return ""
    return f"Cpus_allowed_list {allowed['list']}: all {cores:.0f} CPUs of the host"


@rule("PD714", "NUMA binding ignored or refused", Severity.WARNING, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """NUMA binding was asked for and is not in force, or the start fails on it.

    What it looks like: the flag is accepted and numactl is missing, so Cpus_allowed_list is still all CPUs;
    in a container without the right to set a policy, numactl ends the start.

    What else it could be: slow copies on one host of several may be another pin, or none. A pin that was
    forced to the wrong node is slower than none.

    What to do: install numactl where the engine runs, give the container CAP_SYS_NICE, and prove it with
    /proc/PID/status against the GPU's numa_node in /sys.
    """
    for party in facts.parties:
        missing, refused = (list(party.traces.of(s)) for s in ("numa.no_tool", "numa.refused"))
        unbound = _unbound(facts, party) if _asked(party) else ""
        if not missing and not refused and not unbound:
            continue
        ended = bool(refused) and died(party)
        said = (
            f"{party.name} does not start: its host or container refuses the NUMA policy."
            if ended
            else f"NUMA binding of {party.name} is not in force: "
            + ("numactl is missing." if missing else "it may run on every CPU.")
        )
        yield rule.finding(
            party.name,
            said,
            [*([unbound] if unbound else []), *quoted([*missing, *refused])],
            "install numactl; grep Cpus_allowed_list /proc/PID/status against its GPU's numa_node",
            since=since([*missing, *refused]),
            severity=Severity.ERROR if ended else None,
        )
