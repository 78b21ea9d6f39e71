"""`python -m tests.pdctl.flows.bisect.killed FOLDER [POINT…]`: bisect, and die by SIGKILL at the first point
that no earlier run died at, of all or of those named. Exit 0 when the bisect came to its end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pdctl.flows.bisect.recovery
import pdctl.flows.bisect.state
import pdctl.flows.bisect.trial
from pdctl.flows.bisect import state
from pdctl.flows.bisect.run import Options
from pdctl.flows.bisect.search import Rules
from pdctl.flows.context import Context
from tests.pdctl.flows.bisect.fleet import Fails, bisect
from tests.pdctl.flows.conftest import Bench
from tests.pdctl.flows.killed import die_once

CULPRIT = "KNOB_01"
# What changes something, where its name is looked up.
ACTS = (
    (pdctl.flows.bisect.trial, "write"),
    (pdctl.flows.bisect.trial, "change_env"),
    (pdctl.flows.bisect.trial, "put_live"),
    (pdctl.flows.bisect.recovery, "change_env"),
    (pdctl.flows.bisect.recovery, "put_live"),
    (pdctl.flows.bisect.state, "write"),
)


def main(folder: Path, points: list[str]) -> None:
    calls: dict[str, int] = {}

    def at(name: str) -> None:
        calls[name] = calls.get(name, 0) + 1
        point = f"{name} {calls[name]}"
        if not points or point in points:
            die_once(folder, point)

    def dying(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def both(*args: Any) -> Any:
            done = act(*args)
            at(name)
            return done

        return both

    for module, name in ACTS:
        label = f"{module.__name__.rpartition('.')[2]}.{name}"
        setattr(module, name, dying(label, getattr(module, name)))

    class Dying(Bench):
        def restart(self, ctx: Context, cell: str) -> None:
            """Also with one engine of the cell restarted and the other one not."""
            engine = ctx.fleet.cells[cell].engines[0]
            ctx.units(engine.host).restart(engine.name)
            at("within restart")
            super().restart(ctx, cell)
            at("after restart")

    bench = Dying(folder)
    resume = state.path(bench.fleet()).exists()
    report = bisect(bench, Fails(bench, (CULPRIT,)), Options(Rules(steady=True), resume=resume))
    found = [d.env for b in report.answer.found for d in report.of(b)] if report.answer else []
    print(*found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
