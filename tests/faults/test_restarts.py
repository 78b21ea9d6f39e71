"""Rows 4 to 8: one side or both end and return without a co-restart, in every order, under load.

The last test is the opposite: with `--legacy-bootstrap` the same restart wedges, and a co-restart cures it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, stack, wait_for
from tests.faults.bed import Bed
from tests.faults.cell import Cell, measured, params, run
from tests.faults.kinds import Restart, Stop, pids_of, process_state
from tests.faults.load import ASKS, answer_of

P, D = "prefill-0", "decode-0"


def restart(row: int, fault: str, where: str, make: Callable[[], Restart], slow: bool) -> Cell:
    return Cell(row, fault, where, make, slow=slow)


@dataclass
class Replaced(Stop):
    """Prefill dies and returns at its address while decode is stopped, so that decode comes back believing
    in the life before."""

    was: str = ""

    def inject(self, bed: Bed) -> None:
        self.was = str(bed[P].state()["incarnation"])
        super().inject(bed)
        bed[P].end(signal.SIGKILL)
        bed[P].start()
        bed_address(bed)

    def evidence(self, bed: Bed) -> str:
        now = bed[P].state()["incarnation"]
        if now == self.was or not all(process_state(p) == "T" for p in self.target):
            return ""
        return f"{P} at the same ports is {now}, was {self.was}; {D} was in state T throughout"

    def cure(self, bed: Bed) -> int:
        for pid in reversed(self.target):
            os.kill(pid, signal.SIGCONT)
        bed[P].wait_ready()
        bed[D].wait_ready()
        assert pids_of(bed, D, "group") == self.group, f"{D} was not restarted"
        lives = {p["incarnation"] for p in bed[D].state()["peers"] if p["linked"]}
        assert self.was not in lives, "the old life is still linked"
        return 1


def bed_address(bed: Bed) -> None:
    """Until the new process answers at the old address; it is not ready, its peer is stopped."""

    def answers() -> bool:
        return bool(bed[P].state()["incarnation"])

    wait_for(f"{P} to answer", answers, 120.0)


CELLS = [
    restart(4, "SIGTERM", D, partial(Restart, (D,)), slow=True),
    restart(4, "SIGTERM", P, partial(Restart, (P,)), slow=True),
    restart(5, "SIGTERM and a new life", D, partial(Restart, (D,)), slow=False),
    restart(5, "SIGKILL twice in a row", D, partial(Restart, (D, D), crash=True), slow=True),
    restart(6, "SIGTERM and a new life", P, partial(Restart, (P,)), slow=True),
    restart(6, "SIGKILL twice in a row", P, partial(Restart, (P, P), crash=True), slow=True),
    restart(
        7, "SIGKILL, decode first", "both", partial(Restart, (D, P), crash=True, together=True), slow=True
    ),
    restart(
        7, "SIGKILL, prefill first", "both", partial(Restart, (P, D), crash=True, together=True), slow=True
    ),
    restart(7, "one after the other, P then D", "both", partial(Restart, (P, D)), slow=True),
    restart(7, "one after the other, D then P", "both", partial(Restart, (D, P)), slow=True),
    Cell(8, "a new life at the old ports", P, partial(Replaced, D, "group"), slow=True),
]


@pytest.mark.parametrize("cell", params(CELLS))
def test_cell(bed: Bed, cell: Cell, record: Path | None) -> None:
    run(bed, cell, record)


@pytest.mark.slow
def test_legacy_bootstrap_wedges_and_a_co_restart_cures(
    tmp_path: Path, smollm: Path, right: list[str], record: Path | None
) -> None:
    """The wedge of the field, on purpose: a pinned request, everybody Ready, nobody says anything."""
    with (
        stack(tmp_path, smollm) as made,
        measured(5, "SIGTERM and a new life, legacy bootstrap", D, record) as result,
    ):
        made.engine(P, "prefill", flags=("--legacy-bootstrap",))
        made.engine(D, "decode")
        made.router()
        made.wait_ready()
        assert answer_of(made["router"].url, ASKS[0]) == right[0]
        made[D].end(signal.SIGKILL)
        made[D].start()
        made[D].wait_ready()
        wedged = threading.Thread(target=lambda: made.complete("router", "Wedged", 4, timeout=120.0))
        wedged.start()
        wait_for("the request to be pinned in the inflight queue", partial(pinned, made))
        state = made[P].state()
        assert [p["stale"] for p in state["peers"]] == [True]
        assert state["ready"], "this is what the wedge looks like"
        result.evidence = "a request is pinned while both engines are ready; the peer is stale"
        made.admin("router", "abort", id=state["requests"][0]["id"])
        wedged.join(30.0)
        for name in (D, P):
            made[name].end(signal.SIGKILL)
        for name in (P, D):
            made[name].start()
        for name in (P, D):
            made[name].wait_ready()
        result.restarts = 3
        wait_for("the pair to serve", lambda: made.complete("router", "After", 4).status_code == 200, 30.0)
        made.baseline(P, D)


def pinned(made: Stack) -> bool:
    inflight = made[P].state()["queues"]["inflight"]
    return bool(inflight["depth"] == 1 and inflight["oldest_age_s"] > 2.0)
