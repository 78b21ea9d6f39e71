"""From measured dwells to a value with its margin and its reason, or a refusal; pure.

The rate of false alarms is claimed for the condition in which transfers dwell longest with good reason, a
saturated decode, from the samples alone (estimate.py). The longest dwell of any other condition counts too,
whatever its number of samples. The margin on top covers what was not measured, and claims nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pdctl.fleet.chain import IDLE, INFLIGHT, PREALLOC, QUEUE, TOTAL, TRANSFER
from pdctl.flows.tune.estimate import CONFIDENCE, alike, fitted, needed, smallest, upper

MARGIN = 3.0
# Below it lies what no measurement of minutes sees: a page cache that went cold, a link that flaps.
FLOOR = 45.0
# What some minutes of load can bear out: 299 transfers. Margin and floor lie on top of it and claim nothing;
# who has the traffic to show a smaller rate asks for it.
TARGET = 0.01
# For a condition that no rate is claimed for.
ENOUGH = 30
# Neighbours in time that resemble each other more than this are not independent.
ALIKE = 0.5


@dataclass(frozen=True)
class Proposal:
    """`value` is None for a refusal, and `reason` says why. `value`, `least` and `longest` in seconds.

    `least` is the smallest dwell whose rate of longer ones is below `target`; `rate` is that bound, with 95 %
    confidence, from `samples` transfers. `longest` is the longest healthy dwell of any condition, `fitted`
    what a Pareto tail gives for `value`, None where none can be fitted.
    """

    value: float | None
    least: float | None
    longest: float
    samples: int
    target: float
    rate: float
    margin: float
    floor: float
    reason: str
    fitted: float | None = None
    cautions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """`target` is a rate per transfer; `floor` in seconds."""

    target: float = TARGET
    margin: float = MARGIN
    floor: float = FLOOR


def propose(
    dwells: Mapping[str, Sequence[float]],
    wanted: Wanted | None = None,
    *,
    was_saturated: bool = True,
    waited: float = 0.0,
    trouble: str = "",
    pace: float = 0.0,
    cut_by: Collection[str] = (),
) -> Proposal:
    """The inflight value: margin times the tail, at least the floor, rounded up to 5 s.

    `waited` is the longest that a request stood on decode for a place or for its KV: the deadlines of both
    stand at 5/6 of the value (`chain`), and must not cut what is well.

    `dwells` are the healthy ones of each condition in order of time, `load` and `saturated` among them;
    `trouble` says which requests failed meanwhile, if any did, `cut_by` which deadlines ended some, `pace`
    how many transfers a second were seen while decode was saturated.
    """
    wanted = wanted or Wanted()
    saturated = dwells.get("saturated", ())
    longest = max((v for values in dwells.values() for v in values), default=0.0)
    found = smallest(saturated, wanted.target)
    least, rate = found or (None, upper(len(saturated), 0))

    def made(value: float | None, reason: str) -> Proposal:
        tail = fitted(saturated) if value is not None else None
        beyond = tail.beyond(value) if tail and value is not None else None
        numbers = (len(saturated), wanted.target, rate, wanted.margin, wanted.floor)
        return Proposal(value, least, longest, *numbers, reason, beyond, _cautions(saturated, trouble))

    why = _too_few(dwells, wanted.target, trouble, pace, cut_by)
    if not why and not was_saturated:
        why = (
            "Decode was never saturated: no request waited for a place, so the longest legitimate wait was "
            "not seen. Measure longer, or lower max_running for the measurement."
        )
    if why:
        return made(None, why)
    times = f"{wanted.margin:g} times"
    wide, why = wanted.margin * longest, f"{times} the longest healthy dwell ({longest:.2f} s)"
    if waited * 6.0 / 5.0 > longest:
        wide = wanted.margin * waited * 6.0 / 5.0
        why = f"{times} the longest wait on decode ({waited:.1f} s), whose deadlines are 5/6 of the value"
    value = math.ceil(max(wanted.floor, wide) / 5.0) * 5.0
    if wide < wanted.floor:
        why = f"the floor of {wanted.floor:g} s, which is over {why}"
    text = (
        f"{value:g} s: {why}. From {len(saturated)} transfers with decode saturated, and with "
        f"{100 * CONFIDENCE:g} % confidence, under {100 * rate:.2g} % of all dwell longer than {least:.2f} s "
        f"(target {100 * wanted.target:g} %); the value is {value / max(least or 0.0, 1e-3):.0f} times that."
    )
    return made(value, text)


def _too_few(
    dwells: Mapping[str, Sequence[float]], target: float, trouble: str, pace: float, cut_by: Collection[str]
) -> str:
    """Why the samples do not bear the target out, how many would and how to get them; "" when they do."""
    load, saturated = len(dwells.get("load", ())), len(dwells.get("saturated", ()))
    if trouble and (load < ENOUGH or saturated < needed(target)):
        seen = f"Only {load} transfers were seen under load and {saturated} with decode saturated."
        if cut_by:
            allow, them = ("allow", "them") if len(cut_by) > 1 else ("allows", "it")
            return (
                f"{seen} {trouble}. This load takes longer than {' and '.join(sorted(cut_by))} {allow}: "
                f"raise {them} for the measurement (`pdctl profile set`), or measure shorter prompts "
                "(--context)."
            )
        return f"{seen} {trouble}: run `pdctl diagnose`."
    if load < ENOUGH:
        few = f"Only {load} transfers were seen under load; {ENOUGH} are needed."
        return f"{few} Measure longer (--limit)."
    if saturated < (need := needed(target)):
        few = f"Only {saturated} transfers were seen with decode saturated"
        takes = f", {need / pace:.0f} s at this fleet's pace" if pace > 0 else ""
        bears = upper(saturated, 0)
        lax = (
            f", or ask for what {saturated} bear out: --target {_rounded_up(bears):g}" if bears < 0.5 else ""
        )
        return f"{few}; a rate below {target:g} takes {need}{takes}. Measure longer (--limit){lax}."
    return ""


def _rounded_up(rate: float) -> float:
    """To two digits."""
    step = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return round(math.ceil(rate / step) * step, 12)


def _cautions(saturated: Sequence[float], trouble: str) -> tuple[str, ...]:
    same = alike(saturated)
    alone = (
        f"waits that follow one another resemble each other (rank correlation {same:.2f}): the bound assumes "
        "that they do not, and is worth less than it says; measure longer"
    )
    cut = f"{trouble}: what failed is not among the waits, and they may have become longer"
    return (*([alone] if same > ALIKE else []), *([cut] if trouble else []))


def chain(value: float, current: Mapping[str, float], silent: float = 0.0) -> dict[str, float]:
    """The whole deadline chain around an inflight value: decode below it, the router above it.

    `silent` are seconds that a request may well go without a text: most of it waits for its turn on prefill.
    """
    below = max(1.0, float(math.floor(value * 5.0 / 6.0)))
    idle = max(current.get(IDLE, 0.0), math.ceil(value * 1.5))
    total = current.get(TOTAL, 0.0)
    wanted = {TRANSFER: below, PREALLOC: below, INFLIGHT: value, IDLE: idle}
    if total <= max(idle, silent):
        wanted[TOTAL] = 4.0 * max(idle, math.ceil(silent))
    queue = current.get(QUEUE, math.inf)
    if queue <= below or queue < math.ceil(silent):
        wanted[QUEUE] = max(value, math.ceil(silent))
    return {env: seconds for env, seconds in wanted.items() if current.get(env) != seconds}


def reasons(proposal: Proposal) -> dict[str, str]:
    """Why each value of the chain is what it is, to be kept with it."""
    inflight = f"the inflight timeout of {proposal.value:g} s"
    below, margin = f"5/6 of {inflight}", f"{proposal.margin:g} times the longest"
    return {
        TRANSFER: f"{below}: decode gives up first, so that no page is freed while it still reads.",
        PREALLOC: f"{below}: a wait for pages on decode ends under its own name.",
        INFLIGHT: proposal.reason,
        QUEUE: f"At least {inflight}, and {margin} wait for a first text: prompts wait for their turn, or "
        "because decode is full.",
        IDLE: f"At least 1.5 times {inflight}: no request counts as silent while its transfer may finish.",
        TOTAL: f"4 times the router's idle timeout, or {margin} wait for a first text if that is more: a "
        "silent request is named as silent, not as too long.",
    }


def histogram(values: Sequence[float], value: float | None, width: int = 40) -> list[str]:
    """Lines of a terminal histogram over decades of dwell, the proposed value marked."""
    edges = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, math.inf]
    counts = [0] * len(edges)
    for v in values:
        counts[next(i for i, edge in enumerate(edges) if v <= edge)] += 1
    top = max(counts) if values else 0
    last = max((i for i, c in enumerate(counts) if c), default=-1)
    marked = next((i for i, edge in enumerate(edges) if value is not None and value <= edge), -1)
    lines = []
    for i in range(max(last, marked) + 1):
        label = f"<= {edges[i]:g} s" if edges[i] != math.inf else "more"
        bar = "#" * max(1 if counts[i] else 0, round(width * counts[i] / top) if top else 0)
        mark = f"  <- {value:g} s proposed" if i == marked else ""
        lines.append(f"{label:>9} {counts[i]:6d} {bar}{mark}")
    return lines
