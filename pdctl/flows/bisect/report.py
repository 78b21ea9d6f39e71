"""What a bisect plans and what it found."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from typing import Any

from pdctl.exits import Exit
from pdctl.flows.bisect.differences import Compared, Difference
from pdctl.flows.bisect.forecast import Forecast
from pdctl.flows.bisect.search import Answer, Block, Known, Mix, Rules
from pdctl.flows.bisect.state import State, Trial


@dataclass
class BisectReport:
    """Either `answer`, or `stopped` (which budget was spent) and what is `known` so far.

    `restored` is what an interrupted earlier run had left, `put_back` what this run put back at its end,
    `left_alone` what somebody changed meanwhile. `restarts` are those of this run, ways back included (those
    of all its runs are in `state`), `restart_s` what the last one took, `max_restarts` this run's budget.
    """

    compared: Compared
    state: State
    forecast: Forecast
    rules: Rules
    max_restarts: int | None = None
    restored: list[str] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)
    run: str = ""
    answer: Answer | None = None
    stopped: str = ""
    known: Known = field(default_factory=Known)
    put_back: list[str] = field(default_factory=list)
    restarts: int = 0
    restart_s: float | None = None
    seconds: float = 0.0
    evidence: str = ""

    @property
    def exit(self) -> Exit:
        return Exit.OK if self.answer is not None and self.answer.kind == "found" else Exit.FINDINGS

    @property
    def trials(self) -> list[Trial]:
        return self.state.trials

    @property
    def tests(self) -> int:
        return len(self.state.table)

    def of(self, block: Block) -> list[Difference]:
        return [self.compared.differences[i] for i in block]

    def ends(self) -> str:
        """What the two ends showed, in a sentence."""
        table = self.state.table
        good, bad = table.get(frozenset()), table.get(self.whole)
        if good is None or bad is None:
            return ""
        said = (
            f"did not {bad.refused}" if bad.refused else f"failed {bad.failed} of {bad.failed + bad.passed}"
        )
        passed = f"{self.compared.good} passed {good.passed} of {good.passed + good.failed} runs"
        return f"{passed}, {self.compared.bad} {said}."

    @property
    def whole(self) -> Mix:
        return frozenset(range(len(self.compared.differences)))

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        good, bad, answer = self.compared.good, self.compared.bad, self.answer
        if answer is None:
            return f"Not known yet: {self.stopped}. {self._so_far()}"
        if answer.kind == "good_fails":
            refused = self.state.table[frozenset()].refused
            does = f"does not {refused}" if refused else "fails the check"
            return f"{good} {does}: it must pass, else nothing between the two can be found."
        if answer.kind == "no_verdict":
            return f"The check cannot tell of {good if self.whole not in self.state.table else bad}."
        if answer.kind == "bad_passes":
            runs = self.state.table[self.whole].passed
            least = 1.0 - self.rules.error ** (1.0 / runs)
            return (
                f"{bad} passed all of {runs} runs: if it ever fails, then in less than {least:.0%} of them."
            )
        return self._found(answer)

    def _found(self, answer: Answer) -> str:
        names = [" or ".join(d.env for d in self.of(block)) for block in answer.found]
        if len(names) == 1:
            said = f"{names[0]} flips the check"
        else:
            said = f"{' and '.join(names)} flip the check together"
            said += ", and none of them can be left out" if answer.minimal else ""
        return f"{said}." if answer.minimal else f"{said}; that nothing less does is not shown."

    def _so_far(self) -> str:
        known, n = self.known, len(self.compared.differences)
        found = " and ".join(" or ".join(d.env for d in self.of(block)) for block in known.found)
        if known.whole:
            return f"{found} flip the check; that each of them is needed is not shown."
        rest = ", ".join(d.env for d in self.of(known.rest))
        if found:
            return f"{found} is needed, together with some of: {rest}."
        return f"Among the {len(known.rest)} of {n} that are left: {rest}."

    @property
    def bound(self) -> str:
        """What the answer rests on, in a sentence."""
        answer = self.answer
        if answer is None or answer.kind != "found":
            return ""
        if self.rules.steady:
            return "Each verdict is of one run, because --deterministic was given."
        return (
            f"Wrong with a probability of at most {answer.bound:.2g} (--error {self.rules.error:g}), if "
            f"{self.compared.good} never fails and what is bad fails as often as {self.compared.bad}."
        )

    @property
    def next(self) -> str:
        """The next command, "" when there is none."""
        answer, bad = self.answer, self.compared.bad
        if answer is None:
            return f"pdctl resume {self.run}" if self.run else ""
        if answer.kind == "bad_passes":
            return "" if self.rules.steady else "a check that is closer to what was seen, or more of it"
        if answer.kind != "found":
            return "pdctl diagnose"
        first = self.of(answer.found[0])[0]
        if first.good is None:
            return f"remove {first.env} ({first.bad_at}), then pdctl deploy"
        reason = shlex.quote(f"bisect {self.run}: {first.bad} flips the check".replace(" :", ":"))
        value = shlex.quote(f"{first.env}={first.good}")
        return f"pdctl profile set {bad} {value} --reason {reason}"

    def document(self) -> dict[str, Any]:
        answer = self.answer
        found = [[_difference(d) for d in self.of(b)] for b in answer.found] if answer else []
        return {
            "schema": 1,
            "exit": int(self.exit),
            "good": self.compared.good,
            "bad": self.compared.bad,
            "check": self.state.check,
            "result": answer.kind if answer else "stopped",
            "summary": self.summary,
            "found": found,
            "minimal": bool(answer and answer.minimal),
            "error_bound": answer.bound if answer else None,
            "bound": self.bound,
            "left": [d.env for d in self.of(self.known.rest)] if answer is None else [],
            "differences": [_difference(d) for d in self.compared.differences],
            "not_tried": {
                "reach_no_unit": list(self.compared.idle),
                "secret": list(self.compared.secret),
            },
            "units": [s.name for s in self.compared.subjects],
            "forecast": asdict(self.forecast) | {"seconds": self.forecast.seconds},
            "trials": [self._trial(t) for t in self.trials],
            "tests": self.tests,
            "restarts": self.restarts,
            "restarts_in_all": self.state.restarts,
            "seconds": round(self.seconds, 3),
            "restored": self.restored,
            "put_back": self.put_back,
            "left_alone": self.left_alone,
            "run": self.run,
            "evidence": self.evidence,
            "next": self.next,
        }

    def _trial(self, trial: Trial) -> dict[str, Any]:
        row = asdict(trial)
        row["values"] = [d.env for d in self.of(row.pop("mix"))]
        return row


def _difference(difference: Difference) -> dict[str, Any]:
    return asdict(difference) | {"units": list(difference.units)}
