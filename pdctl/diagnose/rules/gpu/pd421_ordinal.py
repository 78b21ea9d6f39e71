"""PD421: a rank takes a GPU number that there is not."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import gpus
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_SIZES = ("tp", "pp", "dp", "nnodes", "base_gpu_id")
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


@rule("PD421", "more ranks than GPUs", Severity.ERROR, ["logs"], echo_of=["PD411"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine starts a rank on a GPU that it does not see.

    What it looks like: "invalid device ordinal" from the higher ranks at the start; the parallel size of this
    node is larger than the number of visible GPUs, or the first GPU's number is added to a list that is
    already shortened.

    What else it could be: a GPU that was lost makes the same: the others are still there (PD411).

    What to do: make the ranks of a node fit its GPUs: tp x pp / nodes, base-gpu-id, CUDA_VISIBLE_DEVICES,
    the container's --gpus.
    """
    for party in facts.parties:
        lines = list(party.traces.of("gpu.no_ordinal"))
        if not lines:
            continue
        told = [f"{n}: {v}" for n in _SIZES if (v := party.traces.settings.get(n))]
        told += [f"{n}={v}" for n in _VISIBLE if (v := party.traces.environ.get(n))]
        cards = gpus.of_party(facts, party.name)
        yield rule.finding(
            party.name,
            f"{party.name} starts ranks on GPUs that it does not see.",
            [*quoted(lines), *told, *([f"its host shows {len(cards)} GPUs"] if cards else [])],
            "nvidia-smi -L where it runs; make tp, base-gpu-id and CUDA_VISIBLE_DEVICES fit what is there",
            since=since(lines),
        )
