"""PD225: a start that stands still."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import span

# Stage -> (its words, seconds that are still usual).
_STAGES = {
    "start.group": ("ranks find one another", 300.0),
    "start.weights": ("weights are loaded", 1800.0),
    "start.memory": ("host memory is taken and registered", 900.0),
    "start.graphs": ("kernels are compiled or graphs captured", 1800.0),
}
_TESTS = {
    "start.group": (
        Hypothesis(
            "a rank or host cannot be reached",
            "NCCL_DEBUG=INFO: which interface and address does each rank take?",
        ),
        Hypothesis("GPUs cannot reach one another (P2P, ACS, IOMMU)", "start once with NCCL_P2P_DISABLE=1"),
        Hypothesis(
            "a rank was never started", "count the processes of the engine against tp x pp on every host"
        ),
    ),
    "start.weights": (
        Hypothesis(
            "the storage does not answer or is slow", "dd if=SHARD of=/dev/null bs=16M count=64 on the host"
        ),
        Hypothesis("a rank is stuck", "py-spy dump --pid PID of every rank"),
    ),
    "start.memory": (
        Hypothesis(
            "pinning takes long or waits for memory that the host does not have",
            "free -h and cat /proc/PID/status (VmLck, VmPin) twice: does it grow?",
        ),
        Hypothesis(
            "a store that it registers with does not answer",
            "the log of the store's master; nc -z MASTER PORT from this host",
        ),
        Hypothesis("a rank was killed for it", "dmesg -T | grep -i 'killed process'"),
    ),
    "start.graphs": (
        Hypothesis(
            "compilation is slow or waits for a lock of another process",
            "top; ls the cache folder for lock files",
        ),
        Hypothesis(
            "a collective hangs in the warm-up",
            "py-spy dump --pid PID of every rank; start once in eager mode, once with another NCCL release",
        ),
    ),
}


def _stage(party: Party) -> Event | None:
    """The last step of a start that has not ended; None when it is ready or shows no start."""
    traces = party.traces
    steps = list(traces.of(*_STAGES))
    if not steps:
        return None
    # An excerpt may begin in the middle of a start.
    begun = max((e.order for e in traces.of("life.start", "start.group")), default=steps[0].order)
    return None if any(e.order > begun for e in traces.of("start.ready")) else steps[-1]


@rule("PD225", "start hangs", Severity.ERROR, ["logs"], echo_of=["PD339", "PD690"], fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine began its start, neither ended nor became ready, and has said nothing for long.

    What it looks like: the log ends at the first collective, at the weights or at graph capture; the port
    is refused.

    What else it could be: a big model from a slow disk takes half an hour and shows progress. An end with
    an exception is that exception; an end by the supervisor's clock is PD223.

    What to do: the last line says which step it is in, and that decides the next test.
    """
    for party in facts.engines:
        last = _stage(party)
        if last is None or died(party) or party.traces.health == "ok" or party.traces.readings:
            continue
        words, usual = _STAGES[last.sign]
        newest = max((e.at for e in party.traces.events if e.at is not None), default=None)
        if newest is None or facts.at - newest < usual:
            continue
        yield rule.finding(
            party.name,
            f"The start of {party.name} stands still while {words}: nothing for {span(facts.at - newest)}.",
            quoted([last, *list(party.traces.of("nccl.version"))[-1:]]),
            f"pdctl logs {party.name}",
            since=newest,
            hypotheses=_TESTS[last.sign],
        )
