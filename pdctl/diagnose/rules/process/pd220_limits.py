"""PD220: a process ran into a limit of files or threads."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD220", "limit of files or threads reached", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server could not open a file or socket, or start a thread, because its limit is reached.

    What it looks like: "Too many open files", "can't start new thread"; new connections fail while old ones
    go on.

    What else it could be: sockets that leak reach any limit; count them over time before you raise it.

    What to do: `ls /proc/PID/fd | wc -l` against /proc/PID/limits; raise LimitNOFILE or TasksMax, or find
    what leaks when the count climbs without load.
    """
    for sign, what, remedy in (
        (
            "process.no_files",
            "files and sockets",
            "ls /proc/PID/fd | wc -l; raise LimitNOFILE, or mend the leak",
        ),
        ("process.no_threads", "threads", "ls /proc/PID/task | wc -l; raise TasksMax or ulimit -u"),
    ):
        lines = facts.events(sign)
        if lines:
            names = writers(lines)
            yield rule.finding(
                listed(names),
                f"{listed(names)} ran into the limit of {what}.",
                quoted(lines),
                remedy,
                touches=names,
                since=since(lines),
            )
