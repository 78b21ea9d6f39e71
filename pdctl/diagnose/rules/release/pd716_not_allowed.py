"""PD716: a file or folder that a process may not use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died, fatal, past, signal_of
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


def _ended_by(party: Party, lines: Sequence[Event]) -> bool:
    """One that was logged and survived ended nothing: no other exception and no work came after it."""
    traces = party.traces
    if not died(party) or signal_of(traces) is not None:
        return False
    end = fatal(traces)
    worked = any(e.order > lines[-1].order for e in traces.of("net.ready"))
    return not worked and (end is None or end.where in {e.where for e in lines})


@rule("PD716", "path not allowed", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A process ended because it may not write or read a path: no home, another owner, a read-only mount.

    What it looks like: "PermissionError: [Errno 13] Permission denied: '/.cache'" or "Read-only file system"
    at the start. A user without a home gets "/", and every cache (Hugging Face, Triton, FlashInfer, vLLM)
    goes there.

    What else it could be: no room is PD713. A device under /dev that is refused is PD333 or the container's.

    What to do: give it a home that it owns (HOME, HF_HOME, XDG_CACHE_HOME; in a unit CacheDirectory= or
    ReadWritePaths=), or hand the path to its user.
    """
    for party in facts.parties:
        lines = [e for e in party.traces.of("files.not_allowed") if not past(party, e)]
        if not lines or not _ended_by(party, lines):
            continue
        path = next((e.values["path"] for e in lines if e.values.get("path")), "")
        homeless = path.startswith(("/.", "/root/"))
        yield rule.finding(
            party.name,
            f"{party.name} may not use {path or 'a path'}"
            + ("; it runs as a user without a home of its own." if homeless else "."),
            quoted(lines),
            "set HOME, HF_HOME and XDG_CACHE_HOME to a folder that it owns"
            if homeless
            else f"give {path or 'the path'} to the user that it runs as (ls -ld, id), or mount it writable",
            since=since(lines),
        )
