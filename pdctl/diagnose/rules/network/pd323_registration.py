"""PD323: memory cannot be registered for RDMA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_WHY = {
    "Cannot allocate memory": "12",
    "Bad address": "14",
    "Invalid argument": "22",
    "Input/output error": "5",
    "Operation not permitted": "1",
    "Operation not supported": "95",
    "Unknown error 524": "524",
}
_LIMIT = re.compile(r"^Max locked memory\s+(?P<soft>\S+)", re.MULTILINE)
_CAUSES = {
    "14": ("the NIC cannot reach GPU memory: no GPUDirect (peer memory module)", "modprobe nvidia-peermem"),
    "22": (
        "the NIC does not take this kind of memory",
        "register host memory, or use dmabuf with a newer driver",
    ),
    "95": (
        "the NIC does not take this kind of memory",
        "register host memory, or use dmabuf with a newer driver",
    ),
    "524": (
        "the driver does not export GPU memory as dmabuf",
        "load nvidia-peermem, or update driver and kernel",
    ),
    "5": ("the region is larger than the NIC allows (max_mr_size)", "register in smaller regions"),
    "1": ("the process may not lock memory", "add CAP_IPC_LOCK, or ulimit -l unlimited"),
}


@rule("PD323", "memory cannot be registered for RDMA", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The NIC's driver refuses a memory region; the errno names the reason.

    What it looks like: "Failed to register memory" or "ibv_reg_mr … failed" at the start, with free RAM.
    Cannot allocate memory [12] with a finite limit of locked memory is that limit: what is needed is devices
    times region size. Bad address [14]: no GPUDirect. Invalid argument [22]: a kind of memory that the NIC
    does not take. Input/output error [5] with a large region: max_mr_size.

    What else it could be: [12] with unlimited locking is memory that is really short, or too many regions.

    What to do: for [12] LimitMEMLOCK=infinity in the unit, --ulimit memlock=-1 for a container; for [14] load
    nvidia-peermem.
    """
    for party in facts.parties:
        if module := list(party.traces.of("verbs.no_peermem")):
            yield _no_module(rule, party, module)
            continue
        events = list(party.traces.of("verbs.register_failed"))
        if not events:
            continue
        number = next((n for e in events if (n := _errno(e))), "")
        limit = _limit(facts, party)
        hint = list(party.traces.of("verbs.memlock"))
        if number in ("12", "") and ((limit is not None and limit >= 0) or hint):
            cause, remedy = "locked memory is limited", "set LimitMEMLOCK=infinity (--ulimit memlock=-1)"
        elif number in _CAUSES:
            cause, remedy = _CAUSES[number]
        else:
            cause, remedy = "", "grep 'locked memory' /proc/PID/limits"
        told = (
            [f"{party.name}: locked memory is limited to {limit / (1 << 20):g} MiB"]
            if limit and limit > 0
            else []
        )
        yield rule.finding(
            party.name,
            f"{party.name} cannot register memory for RDMA{f' (errno {number})' if number else ''}"
            + (f": {cause}." if cause else "."),
            [*told, *quoted([*events, *hint, *party.traces.of("verbs.size")])],
            f"{remedy}, then: pdctl restart {party.name}",
            since=since(events),
            hypotheses=() if cause else _LIVE,
        )


def _no_module(rule: Rule, party: Party, lines: list[Event]) -> Finding:
    """The transfer engine names the module that it wants."""
    return rule.finding(
        party.name,
        f"{party.name} cannot register GPU memory for RDMA: it has neither nvidia-peermem nor dmabuf.",
        quoted(lines),
        f"modprobe nvidia-peermem on its host, then: pdctl restart {party.name}",
        since=since(lines),
    )


_LIVE = (
    Hypothesis("locked memory is limited", "grep 'locked memory' /proc/PID/limits (ulimit -l)"),
    Hypothesis(
        "memory or regions have run out", "free -h; cat /proc/PID/status; ibv_devinfo -v | grep max_mr"
    ),
)


def _errno(event: Event) -> str:
    return event.values.get("errno", "") or _WHY.get(event.values.get("why", ""), "")


def _limit(facts: Facts, party: Party) -> float | None:
    """Bytes that the process may lock, -1 for no limit: its own limits first, else its host's shell."""
    found = _LIMIT.search(party.traces.files.get("limits", ""))
    if found:
        return -1.0 if found["soft"] == "unlimited" else float(found["soft"])
    host = facts.host(party.member.host)
    return host.traces.numbers.get("memlock") if host else None
