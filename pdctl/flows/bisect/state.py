"""What a bisect has learned, kept after every run of the check: .pdctl/bisect/state.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet
from pdctl.flows.bisect.differences import Compared, Difference
from pdctl.flows.bisect.recovery import folder
from pdctl.flows.bisect.search import Count, Mix
from pdctl.flows.recovery.record import keep

SCHEMA = 1


@dataclass(frozen=True)
class Trial:
    """One mix that was put on the fleet and the runs of the check on it. `detail` is what the last one
    said."""

    mix: tuple[int, ...]
    passed: int
    failed: int
    unknown: int
    refused: str
    restarts: int
    seconds: float
    detail: str


@dataclass
class State:
    """`values` are (name, GOOD's, BAD's) of each difference in order; `check` is the check in words,
    `answers` what the token check recorded under GOOD. `restarts` are those of every run so far, the ones
    that were cut off too."""

    good: str
    bad: str
    check: str
    error: float
    steady: bool
    values: list[tuple[str, str | None, str | None]]
    trials: list[Trial] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    restarts: int = 0

    @property
    def table(self) -> dict[Mix, Count]:
        table: dict[Mix, Count] = {}
        for t in self.trials:
            mix, was = frozenset(t.mix), table.get(frozenset(t.mix), Count())
            sums = (was.passed + t.passed, was.failed + t.failed, was.unknown + t.unknown)
            table[mix] = Count(*sums, t.refused or was.refused)
        return table

    def ordered(self, compared: Compared) -> Compared:
        """`compared` with its differences in the order of this state, whose numbers are those of its
        mixes."""
        at = {name: i for i, (name, _good, _bad) in enumerate(self.values)}
        return replace(compared, differences=tuple(sorted(compared.differences, key=lambda d: at[d.env])))

    @property
    def _about(self) -> dict[str, Any]:
        """What must be the same for its runs to count."""
        same = (self.good, self.bad, self.check, self.error, self.steady)
        return dict(zip(("good", "bad", "check", "error", "deterministic"), same, strict=True))

    def document(self) -> dict[str, Any]:
        trials = [asdict(t) for t in self.trials]
        return {
            "schema": SCHEMA,
            **self._about,
            "values": self.values,
            "trials": trials,
            "answers": self.answers,
            "restarts": self.restarts,
        }


def path(fleet: Fleet) -> Path:
    return folder(fleet) / "state.json"


def write(fleet: Fleet, state: State) -> None:
    keep(path(fleet), state.document())


def begin(compared: Compared, check: str, error: float, steady: bool) -> State:
    values = [_triple(d) for d in compared.differences]
    return State(compared.good, compared.bad, check, error, steady, values)


def _triple(difference: Difference) -> tuple[str, str | None, str | None]:
    return difference.env, difference.good, difference.bad


def resumed(fleet: Fleet, fresh: State) -> State:
    """What is kept of the same bisect as `fresh`; ConfigError when there is none, or it is another."""
    file = path(fleet)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        good, bad, check = (str(data[key]) for key in ("good", "bad", "check"))
        values = [(str(name), was, now) for name, was, now in data["values"]]
        trials = [Trial(**{**row, "mix": tuple(row["mix"])}) for row in data["trials"]]
        answers = {str(name): str(text) for name, text in data["answers"].items()}
        rules = float(data["error"]), bool(data["deterministic"])
        kept = State(good, bad, check, *rules, values, trials, answers, int(data.get("restarts", 0)))
        if data["schema"] != SCHEMA:
            raise ValueError(f"it is of schema {data['schema']}, not {SCHEMA}")
    except FileNotFoundError:
        raise ConfigError(
            "no_bisect", f"There is no bisect to go on with: {file}.", "Leave out --resume."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = f"{file} cannot be read: {error}."
        raise ConfigError("bad_state", said, "Leave out --resume to begin anew.") from None
    other = [
        f"{k}: {v!r} then, {fresh._about[k]!r} now" for k, v in kept._about.items() if v != fresh._about[k]
    ]
    changed = [
        f"{name}: {good} or {bad} then"
        for name, good, bad in kept.values
        if (name, good, bad) not in fresh.values
    ]
    changed += [f"{v[0]}: did not differ then" for v in fresh.values if v not in kept.values]
    if other or changed:
        hint = "Leave out --resume to begin anew."
        raise ConfigError("other_bisect", f"{file} is of another bisect.", hint, details=[*other, *changed])
    return kept
