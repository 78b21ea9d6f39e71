"""What was changed, by whom told or seen in the settings of the last good start, and what it cured; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pdctl.adapters.traces import Traces
from pdctl.diagnose.facts import Change, Facts

KINDS: dict[str, re.Pattern[str]] = {
    "split": re.compile(r"split|cta|num_stages|num_warps|block_(?:m|n|k|kv)|tile|waves", re.I),
    "graph": re.compile(r"cuda_?graph|enforce_eager|hip_?graph|acl_?graph|compilation_config", re.I),
    "stream": re.compile(r"stream|overlap|two_batch|dual_batch|async_scheduling", re.I),
    "transfer": re.compile(r"transfer_backend|kv_connector|mooncake|nixl|serial", re.I),
    "attention": re.compile(r"attention_backend|attn|moe_backend|flashinfer|trtllm_gen", re.I),
    "speculative": re.compile(r"spec|draft|mtp|eagle", re.I),
    "colocated": re.compile(r"colocat|monolith|aggregat|disaggregation|single engine|without pd", re.I),
}


@dataclass(frozen=True)
class Knob:
    """A setting or variable whose value is another than at the last good start; "" stands for unset."""

    party: str
    kind: str
    name: str
    was: str
    value: str

    @property
    def told(self) -> str:
        return f"{self.name}: {self.was or 'unset'} at the last good start, {self.value or 'unset'} now"


def kind_of(text: str) -> str:
    return next((kind for kind, form in KINDS.items() if form.search(text)), "")


def knobs(party: str, traces: Traces) -> list[Knob]:
    """Tuning knobs among what differs from the last good start; empty when nobody kept that."""
    if not traces.former:
        return []
    now = {**traces.settings, **traces.environ}
    names = sorted(set(traces.former) | set(now))
    # What the former start does not show at all (its flags, or its variables) is not known to differ.
    flags = any(not name.isupper() for name in traces.former)
    variables = any(name.isupper() for name in traces.former)
    found = []
    for name in names:
        if not (variables if name.isupper() else flags):
            continue
        was, value, kind = traces.former.get(name, ""), now.get(name, ""), kind_of(name)
        if was != value and kind in ("split", "graph", "stream", "attention", "speculative"):
            found.append(Knob(party, kind, name, was, value))
    return found


def cured(facts: Facts, kind: str) -> list[Change]:
    """Changes of that kind with which the trouble ended."""
    return [c for c in facts.changes if c.cured is True and kind_of(f"{c.name} {c.value}") == kind]


def told(change: Change) -> str:
    what = f"{change.name}={change.value}" if change.value else change.name or change.what
    end = {True: "the trouble ended", False: "the trouble stayed", None: "not said what came of it"}[
        change.cured
    ]
    return f"changed {what}{f' on {change.party}' if change.party else ''}: {end}"
