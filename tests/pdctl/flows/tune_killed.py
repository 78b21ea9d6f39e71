"""`python -m tests.pdctl.flows.tune_killed FOLDER`: tune-timeout --apply on a fleet of doubles, which dies by
SIGKILL at the first moment where no earlier run died. Exit 0 when all of them have been passed.

A moment is behind each step of the run's journal, and behind each write to the operator's own disk.
What is measured and seen to fire is given: the doubles move no KV.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pdctl.fleet.edit
import pdctl.flows.recovery.record as record
import pdctl.flows.tune.apply as tune_apply
import pdctl.flows.tune.run as tune
from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Engine
from pdctl.flows.changing import changing
from pdctl.flows.context import Context
from pdctl.flows.recovery import restore
from pdctl.flows.recovery.timeouts import set_live
from pdctl.flows.tune.measure import Phase
from pdctl.flows.tune.proof import Check, Proof
from pdctl.flows.tune.proposal import Wanted
from pdctl.flows.tune.report import Options
from pdctl.remote.journal import Call, Journal
from tests.pdctl.flows.killed import die_once

SHORT = 3.0


def dying(folder: Path, counts: Counter[str], name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    """`act`, with a death behind each of its calls."""

    def acts(*args: Any, **more: Any) -> Any:
        counts[name] += 1
        made = act(*args, **more)
        die_once(folder, f"behind {name} {counts[name]}")
        return made

    return acts


def proved(ctx: Context, prefill: Engine, decode: Engine, value: float) -> Proof:
    set_live(ctx, prefill.name, {"inflight": value})
    return Proof(prefill.name, decode.name, value, value, "drill-1", (Check("given", True, ""),))


def measured(ctx: Context, plans: object) -> list[Phase]:
    return [
        Phase("load", 1.0, (0.1,) * 60, {}, 0, ()),
        Phase("saturated", 1.0, (0.5,) * 60, {}, 9, ()),
    ]


def main(folder: Path) -> None:
    counts: Counter[str] = Counter()
    for room, names in (
        (tune, ("write",)),
        (tune_apply, ("write", "forget")),
        (restore, ("write_profile", "forget")),
        (pdctl.fleet.edit, ("write_profile",)),
    ):
        for name in names:
            setattr(room, name, dying(folder, counts, name, getattr(room, name)))
    doing = Journal.doing

    @contextmanager
    def steps(self: Journal, id: str, *args: Any, **more: Any) -> Iterator[Any]:
        counts[id] += 1
        with doing(self, id, *args, **more) as step:
            yield step
        die_once(folder, f"behind {id} {counts[id]}")

    Journal.doing = steps  # type: ignore[method-assign, assignment]
    tune.measure, tune.prove = measured, proved  # type: ignore[assignment]
    ctx = Context(load_fleet(folder / "fleet.toml"))
    options = Options(wanted=Wanted(target=0.06), apply=True)
    with changing(ctx, Call("tune-timeout --apply")):
        report = tune.run(ctx, options)
    assert report.ok and report.applied and report.verified, report.document()
    assert record.path(ctx.fleet).exists() is False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
