"""PD224: the kernel says that a task hangs in it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD224", "task hangs in the kernel", Severity.ERROR, ["kernel"], echo_of=["PD410", "PD411", "PD412"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A process has been in uninterruptible sleep for minutes: in a driver or on storage that does not
    answer.

    What it looks like: "task NAME:PID blocked for more than 120 seconds" in the kernel log, state D in ps,
    a kill that does nothing.

    What else it could be: a process in state R that makes no step hangs in its own code. With an Xid beside
    it the GPU is at fault.

    What to do: the stack below the line names the driver or file system. SIGKILL does not help; storage has
    to answer again, or the host has to boot.
    """
    for host in facts.hosts:
        lines = [e for e in host.traces.events if e.sign == "kernel.hung_task"]
        if not lines:
            continue
        names = listed(dict.fromkeys(e.values["name"] for e in lines))
        here = [p.name for p in facts.parties if p.member.host == host.name]
        yield rule.finding(
            host.name,
            f"{names} on {host.name} hangs in the kernel.",
            quoted(lines),
            f"cat /proc/PID/stack on {host.name}; mend what it names, or boot the host",
            touches=[host.name, *here],
            since=since(lines),
            hypotheses=[
                Hypothesis(
                    "the GPU's driver does not answer", "cat /proc/PID/stack: nvidia or amdgpu frames?"
                ),
                Hypothesis(
                    "a network file system or disk does not answer",
                    "ls on the model's folder; mount | grep nfs",
                ),
            ],
        )
