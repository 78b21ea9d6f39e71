"""PD442: GPUs spin and no token comes."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import gpus
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.progress import stall
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule


def tp(view: EngineView) -> int | None:
    """Processes of its tensor, pipeline and data parallel group; None when no setting says."""
    product, known = 1, False
    for name in ("tp", "pp", "dp"):
        text = view.traces.settings.get(name, "")
        if text.isdigit():
            product, known = product * int(text), True
    return product if known else (1 if not view.traces.ranks and view.traces.settings else None)


def hypotheses(view: EngineView) -> list[Hypothesis]:
    """What a GPU that spins may be stuck in."""
    kernel = Hypothesis(
        "a kernel on the GPU never ends",
        "cuda-gdb -p PID -ex 'info cuda kernels'; then another attention backend, or no CUDA graphs",
    )
    if tp(view) == 1:
        fault = Hypothesis(
            "the GPU or its driver is at fault", "dmesg -T | grep -i xid on the host, not in the container"
        )
        return [kernel, fault]
    ras = Hypothesis(
        "ranks are out of step in a collective",
        "ncclras (port 28028) twice, 10 s apart: do operation counts differ?",
    )
    return [ras, kernel]


@rule(
    "PD442",
    "GPU spins without progress",
    Severity.ERROR,
    ["gpus", "readings"],
    echo_of=["PD440", "PD441", "PD451"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine has running requests and no token comes, while its GPUs are busy at low power.

    What it looks like: nvidia-smi says 96 to 100 % with a fraction of the usual power and no memory
    traffic; health is 200, the token counters stand still with requests running.

    What else it could be: usual power is work: slow, not hung. 0 % busy with a full KV pool is a deadlock
    over resources (PD443). One group of one GPU (TP 1) excludes NCCL and every peer; with more ranks,
    NCCL's operation counts decide between ranks out of step (PD440) and a stuck kernel (PD441).

    What to do: take the evidence that the hypotheses ask for before the restart, because it is lost with
    it.
    """
    for view in facts.engines:
        cards = gpus.of_party(facts, view.name)
        found = stall(view.traces)
        spinning = [g for g in cards if gpus.spins(g)]
        if found is None or not spinning or gpus.odd(cards) is not None:
            continue
        alone = tp(view) == 1
        why = " One GPU: no collective and no peer takes part." if alone else ""
        yield rule.finding(
            view.name,
            f"{view.name} makes no token while its GPU spins.{why}",
            [
                found.told,
                *map(gpus.told, spinning[:4]),
                *([f"health: {view.traces.health}"] if view.traces.health else []),
            ],
            f"pdctl restart --co {view.member.cell}",
            since=found.since,
            hypotheses=hypotheses(view),
        )
