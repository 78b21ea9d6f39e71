"""PD310: another UCX than NIXL was built for is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_LIBUCP = re.compile(r"(/\S*libucp[\w.-]*\.so[\w.]*)")


@rule("PD310", "a system UCX shadows NIXL's own", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """NIXL found a UCX of another version than it was built for, so its backend or GPU memory fails.

    What it looks like: "UCP version is incompatible, required …, actual …" at the start of an engine, then
    NIXL_ERR_BACKEND when memory is registered; host memory may work and GPU memory not.

    What else it could be: NIXL_ERR_BACKEND without that line has other causes: no plugin, memory limits,
    a device list that leaves out loopback. A missing plugin says so by name.

    What to do: have one UCX. Look for the loaded one in /proc/PID/maps (libucp.so), take the system's or
    HPC-X's out of LD_LIBRARY_PATH or remove it, and restart the engine.
    """
    events = facts.events("ucx.wrong_version")
    if events:
        names = writers(events)
        required, actual = (events[0].values.get(k, "?") for k in ("required", "actual"))
        yield rule.finding(
            listed(names),
            f"{listed(names)} loaded UCX {actual} and its NIXL needs {required}: a system UCX shadows it.",
            quoted([*events, *facts.events("nixl.backend_error")]),
            "grep libucp /proc/PID/maps; take that UCX out of LD_LIBRARY_PATH",
            touches=names,
            since=since(events),
        )
        return
    for party in facts.parties:
        foreign = _foreign(party)
        failed = list(party.traces.of("nixl.backend_error", "ucx.no_cuda"))
        if foreign and failed:
            yield rule.finding(
                party.name,
                f"{party.name} loaded UCX from {foreign[0]} and not NIXL's own, and NIXL's backend fails.",
                [*(f"{party.name} maps {path}" for path in foreign), *quoted(failed)],
                "take that UCX out of LD_LIBRARY_PATH or remove it, and start it again",
                since=since(failed),
            )


def _foreign(party: Party) -> list[str]:
    """Paths of a loaded libucp that is not of NIXL's wheel (nixl.libs, .nixl…libs)."""
    paths = dict.fromkeys(_LIBUCP.findall(party.traces.files.get("maps", "")))
    return [path for path in paths if "nixl" not in path]
