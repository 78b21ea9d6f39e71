"""Play drills one after the other: record, inject, see it take effect, see it found, undo, see it serve."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from pdctl.bundle.read import facts_of
from pdctl.diagnose.report import Report, make
from pdctl.errors import DeadlineError, PdctlError
from pdctl.fleet.model import Engine
from pdctl.flows import admin
from pdctl.flows.canary import router_canary
from pdctl.flows.collect.run import collect
from pdctl.flows.context import Context
from pdctl.flows.drill.gate import edge_of, need_drillable
from pdctl.flows.drill.kind import Drill, Scene, news
from pdctl.flows.drill.requests import Requests
from pdctl.flows.drill.score import Board, Row
from pdctl.flows.foreign import is_foreign
from pdctl.flows.recovery.record import path, write
from pdctl.flows.recovery.restore import restore
from pdctl.flows.serving import need_serving
from pdctl.flows.waiting import until

# Until a fault shows that it acts; a busy host may be slow to compute the request that meets it.
EFFECT = 60.0
# A killed engine loads its model again.
MENDED = 300.0
OTHERS = 2
CANARY = 60.0


def run(
    ctx: Context,
    drills: Sequence[Drill],
    on: str = "",
    really: bool = False,
    confirm: Callable[[str], None] = lambda question: None,
) -> Board:
    """Each of `drills`, on the first edge or on that of engine `on`; what came of them is on the board.

    What an interrupted run had left is put back first. ConfigError for a fleet that is not drillable,
    UnreachableError or PdctlError for one that does not serve; the operator is asked before anything is done.
    """
    fleet = ctx.fleet
    need_drillable(fleet, really)
    prefill, decode, chosen = edge_of(fleet, on)
    lines = [f"{d.name}: {d.does}" for d in drills]
    confirm("\n".join([*lines, f"Do this to {fleet.name}, one after the other, and undo each?"]))
    restored = restore(ctx)
    board = Board(fleet.name, restored=restored.done, left_alone=restored.left)
    need_serving(ctx, "to drill")
    try:
        _all(ctx, drills, (prefill, decode, chosen), board)
    except KeyboardInterrupt:
        if path(fleet).exists():
            raise
        _stopped(board)
    return board


def _stopped(board: Board) -> None:
    """What is true behind an interrupt that has left nothing to put back."""
    board.stopped = "what was played is undone"
    row = board.rows[-1] if board.rows else Row("")
    if (row.evidence or row.put_back) and row.undone is None:
        board.stopped += f"; whether everything serves again behind {row.name} was not seen: `pdctl diagnose`"
    if row.took is None and not row.skipped and not row.wrong:
        row.skipped = "it was interrupted"


def _all(
    ctx: Context, drills: Sequence[Drill], on: tuple[Engine, Engine, Engine | None], board: Board
) -> None:
    for drill in drills:
        scene = Scene(ctx, *on, Requests(ctx))
        row = Row(drill.name, drill.subject(scene).name, within=drill.within, spares=drill.spares)
        board.rows.append(row)
        row.skipped = drill.cannot(scene)
        ctx.say(f"{drill.name}: {row.skipped or drill.does}")
        if not row.skipped:
            _play(scene, drill, row)
        if row.wrong:
            ctx.say(f"{drill.name}: {'; '.join(row.wrong)}")
            if row.undone is None:
                break  # nothing more is broken on a fleet that is not whole


def _play(scene: Scene, drill: Drill, row: Row) -> None:
    """One drill, undone whatever comes of it; an error of the drill itself is on its row."""
    _before(scene, drill)
    row.expected = drill.expected(scene)
    clash = [f"{code} of {who}" for code, who in scene.known if code in row.expected and who == row.subject]
    if clash:
        row.skipped = f"{clash[0]} is found already, so it could not be told from this drill"
        return
    scene.record = drill.prepare(scene)
    write(scene.ctx.fleet, scene.record)
    others: list[str] = []
    began = time.monotonic()
    try:
        drill.inject(scene)
        victims = scene.sent.send(drill.ruins or 1)
        row.evidence = _effect(scene, drill)
        others = ([] if drill.ruins else victims) + scene.sent.send(OTHERS)
        if row.evidence:
            _detect(scene, drill, row, began)
        else:
            row.wrong.append(f"it took no effect within {EFFECT:g} s")
    except PdctlError as error:
        row.wrong.append(error.message)
    finally:
        _undo(scene, drill, row, others)
    _served(scene, drill, row, others)


def _before(scene: Scene, drill: Drill) -> None:
    """What stands before anything is done: the subject's own words, and what diagnose says of the fleet."""
    subject = drill.subject(scene)
    if not is_foreign(subject):
        scene.state = admin.get(scene.ctx, subject.url, "/v1/state")
    scene.known |= set(news(scene, diagnosed(scene.ctx)))


def diagnosed(ctx: Context) -> Report:
    """As anybody else would find the fleet: that this run holds its lock is no part of the picture."""
    began = time.monotonic()
    facts = facts_of(collect(ctx), time.time())
    return make(replace(facts, run=""), time.monotonic() - began)


def _effect(scene: Scene, drill: Drill) -> str:
    """What shows that it acts, "" when nothing does in time."""
    seen: list[str] = []

    def quiet() -> str:
        seen[:] = [drill.evidence(scene)]
        return "" if seen[0] else "it does not act"

    try:
        until(quiet, EFFECT, 0.2)
    except DeadlineError:
        return ""
    return seen[0]


def _detect(scene: Scene, drill: Drill, row: Row, began: float) -> None:
    """Diagnose until what is expected leads; at the deadline what led instead."""
    end = time.monotonic() + drill.within
    while True:
        report = diagnosed(scene.ctx)
        row.detected = drill.found(scene, report)
        if row.detected:
            row.took = round(time.monotonic() - began, 1)
            scene.ctx.say(f"{drill.name}: {row.evidence}; found as {row.detected} after {row.took:g} s")
            return
        fresh = news(scene, report)
        row.led = " ".join(fresh[0]) if fresh else "nothing"
        if time.monotonic() > end:
            row.wrong.append(f"{row.led} led, not {' or '.join(row.expected)}, for {drill.within:g} s")
            return


def _undo(scene: Scene, drill: Drill, row: Row, others: list[str]) -> None:
    """Put back by the record, and wait until the fleet is as before; never raises for what is not."""
    began = time.monotonic()
    try:
        row.put_back += restore(scene.ctx).done
        row.put_back += drill.undo(scene)
        lost = [id for id in scene.sent.ids if id not in others]
        scene.sent.end(lost)
        until(lambda: drill.unmended(scene) or _held(scene, lost), MENDED, 0.5)
        row.undone = round(time.monotonic() - began, 1)
    except PdctlError as error:
        row.wrong.append(f"not undone: {error.message}")


def _held(scene: Scene, lost: Sequence[str]) -> str:
    """Which of the drill's lost requests an engine still holds; "" when none does."""
    for engine in (scene.prefill, scene.decode):
        for request in scene.now(engine).get("requests", []):
            if request["id"] in lost:
                return f"{engine.name} still holds {request['id']}"
    return ""


def _served(scene: Scene, drill: Drill, row: Row, others: list[str]) -> None:
    """Requests that were not to be lost are answered, and so is one more through the router."""
    row.asked = len(others)
    codes = scene.sent.outcomes(others, MENDED)
    scene.sent.end()
    row.answered = codes.count("")
    bad = ", ".join(code for code in codes if code)
    if bad and drill.spares:
        row.wrong.append(f"{row.answered} of {row.asked} healthy requests were answered, the others: {bad}")
    if row.undone is None or scene.ctx.fleet.router.kind == "none":
        return
    try:
        router_canary(scene.ctx, CANARY)
    except PdctlError as error:
        row.undone = None  # ready is not whole: a wedge looks like this
        row.wrong.append(f"not undone: {error.message}")
