"""PD446: a watchdog fired; it is the messenger."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died, failed_before, gravity, past
from pdctl.diagnose.progress import stands
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import span

_CAUSES = ("PD440", "PD441", "PD442", "PD445", "PD447", "PD448", "PD449", "PD450", "PD451", "PD453", "PD680")
_FIRED = ("watchdog.fired", "collective.timeout", "collective.gloo_timeout")


_OFTEN = 3  # lines of a wait that a start or a compilation gives too


def _fired(facts: Facts, party: Party) -> list[Event]:
    waits = list(party.traces.of("watchdog.shm_wait"))
    patient = (len(waits) >= _OFTEN and stands(party.traces, facts.at)) or died(party)
    fired = [*party.traces.of(*_FIRED), *(waits if patient else ())]
    # A soft one ends nothing, and complains of engines that work.
    if not stands(party.traces, facts.at):
        fired = [e for e in fired if e.values.get("soft") != "True"]
    # One that ended an earlier life is not why the last one ended.
    over = party.traces.ended is not None
    return sorted((e for e in fired if not (over and past(party, e))), key=lambda e: e.order)


def _compiles(party: Party, first: Event) -> list[Hypothesis]:
    """A rank that builds kernels comes late to its peers, who do not know why."""
    jit = [e for e in party.traces.of("start.jit") if e.order < first.order]
    if not jit:
        return []
    return [
        Hypothesis(
            f"a rank still compiles kernels ({jit[-1].where}) and comes too late to the others",
            "compile them before the start (the engine's warm-up command) or start again with the cache full",
        )
    ]


def _seconds(lines: list[Event]) -> float | None:
    for event in lines:
        if text := event.values.get("seconds"):
            return float(text)
        if text := event.values.get("ms"):
            return float(text) / 1000
    return None


def _experts(lines: list[Event]) -> list[Hypothesis]:
    """The all-to-all of experts goes over NVSHMEM, not NCCL."""
    if not any("DeepEP" in e.line for e in lines):
        return []
    return [
        Hypothesis(
            "the experts' all-to-all does not get across: NVSHMEM is not the version that DeepEP was built "
            "with, or the NIC is not set up for it (IBGDA)",
            "DeepEP's tests/test_internode.py between two nodes; pip list | grep -iE 'nvshmem|deep' on each",
        )
    ]


@rule("PD446", "a watchdog fired", Severity.ERROR, ["logs"], echo_of=_CAUSES, fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A watchdog ended an engine, or complains, because a step did not end in its time.

    What it looks like: "Watchdog timeout", "Watchdog caught collective operation timeout", "RPC call to …
    timed out", "No available shared memory broadcast block"; then SIGQUIT or EngineDeadError for everybody.

    What else it could be: the watchdog is the messenger. The cause is one timeout earlier, and often on
    another rank or host: the rank that does not complain is the odd one.

    What to do: look at all ranks' logs and the kernel log in the time before it fired, as long as the
    timeout is. Install py-spy beside the engine, so that the next one leaves stacks. A longer timeout cures
    nothing.
    """
    for party in facts.parties:
        lines = _fired(facts, party)
        if not lines or failed_before(party.traces, lines[0].order):
            continue
        work = list(party.traces.of("collective.last_work"))
        blind = list(party.traces.of("watchdog.no_stacks"))
        seconds = _seconds(lines)
        when = f"the {span(seconds)} before" if seconds else "the time before"
        stacks = (
            "pip install py-spy where the engine runs" if blind else "py-spy dump --pid PID of every rank"
        )
        yield rule.finding(
            party.name,
            f"A watchdog of {party.name} fired: a step did not end. Its cause is in {when}.",
            quoted([*lines[:3], *work[:2], *blind[:1]], 6),
            f"pdctl restart --co {party.member.cell}",
            since=since(lines),
            severity=gravity(party),
            hypotheses=[
                *_compiles(party, lines[0]),
                *_experts(lines),
                Hypothesis(
                    "another rank or host failed or branched off first",
                    f"logs of all ranks and dmesg of all hosts in {when} it",
                ),
                Hypothesis(
                    "a kernel on the GPU never ends",
                    f"{stacks} and nvidia-smi before the next restart",
                ),
            ],
        )
