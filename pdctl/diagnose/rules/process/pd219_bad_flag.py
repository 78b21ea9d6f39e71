"""PD219: a flag or a setting that this version does not take."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.advice import advice, flag
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died, fatal, past, place, told
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_ARGUMENTS = re.compile(r"(?:^|/)(?:server_args|arg_utils|engine_args|cli_args|launch_args|argparse\w*)\.py$")
_BEGUN = ("start.", "memory.", "net.ready")


def _refused(rule: Rule, party: Party) -> Finding | None:
    """It ended where it reads its arguments, before anything else began: no peer or GPU takes part."""
    event = fatal(party.traces) if died(party) else None
    if event is None or past(party, event):
        return None
    where, frames = place(party.traces, event)
    if not frames or not _ARGUMENTS.search(frames[-1].values.get("file", "")):
        return None
    if any(e.order < event.order and e.sign.startswith(_BEGUN) for e in party.traces.events):
        return None
    message = event.values.get("message", "")
    what, says = flag(message, party.traces), advice(message, party.traces)
    change = says or f"correct {what or 'the setting that it names'} of {party.name}"
    return rule.finding(
        party.name,
        f"{party.name} refuses its settings{f' ({what})' if what else ''}: {told(event).rstrip('.')}.",
        [*quoted([event, *frames]), f"in {where}, before anything was loaded"],
        f"{change} in the fleet file, then: pdctl deploy",
        since=event.at,
    )


@rule("PD219", "settings refused", Severity.ERROR, ["logs"], echo_of=["PD313"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server ended at once because its command line has a flag or value that this version does not take.

    What it looks like: a usage text, "unrecognized arguments" or "invalid choice", exit code 2; or an
    exception where arguments are read (server_args.py, arg_utils.py), before weights are loaded.

    What else it could be: nothing; flags come and go between versions.

    What to do: see `--help` of the version that runs there, or go back to the version that the flags are
    for.
    """
    for party in facts.parties:
        if (refused := _refused(rule, party)) is not None:
            yield refused
            continue
        lines = [e for e in party.traces.of("process.bad_flag") if not past(party, e)]
        if not lines or not died(party):
            continue
        version = f" {party.traces.version}" if party.traces.version else ""
        yield rule.finding(
            party.name,
            f"{party.name}{version} does not take {lines[-1].values.get('what', 'a flag')}.",
            quoted(lines),
            "correct the flag in the fleet file, then: pdctl deploy",
            since=since(lines),
        )
