"""PD220: a process ran into a limit of files or threads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_LIMITS = {"process.no_files": "Max open files", "process.no_threads": "Max processes"}
_ROW = re.compile(r"(?P<what>Max [a-z ]+?)\s{2,}(?P<soft>\S+)\s+(?P<hard>\S+)")


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
            told = [line for name in names if (line := _limit(facts, name, sign))]
            yield rule.finding(
                listed(names),
                f"{listed(names)} ran into the limit of {what}" + (f" ({told[0]})." if told else "."),
                [*quoted(lines), *told],
                remedy,
                touches=names,
                since=since(lines),
            )


def _limit(facts: Facts, name: str, sign: str) -> str:
    """What /proc/PID/limits allows the writer, "" where it is not shown."""
    party = facts.party(name)
    text = party.traces.files.get("limits", "") if party else ""
    rows = {m["what"]: m for m in _ROW.finditer(text)}
    row = rows.get(_LIMITS[sign])
    return f"{_LIMITS[sign].lower()} {row['soft']} of at most {row['hard']}" if row else ""
