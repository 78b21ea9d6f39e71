"""Which drills there are, how they are named, and on which fleets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pdctl.diagnose.rules import BY_CODE
from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.fleet.profile import load_profile
from pdctl.flows.context import Context
from pdctl.flows.drill import run as drill_run
from pdctl.flows.drill.catalogue import DRILLS, chosen
from pdctl.flows.drill.gate import edge_of
from pdctl.flows.drill.run import _served
from pdctl.flows.drill.score import Board, Row
from pdctl.flows.init import Wanted, init_fleet
from pdctl.flows.recovery import record
from pdctl.flows.recovery.restore import Restored
from tests.pdctl.models import model_folder


def test_what_a_drill_expects_is_a_rule() -> None:
    assert {code for drill in DRILLS.values() for code in drill.codes} <= BY_CODE.keys()


def test_a_fleet_that_is_ready_and_does_not_answer_is_not_whole_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wedge looks like this; a run of drills ends there."""

    def silent(*_: object) -> None:
        raise PdctlError("canary", "The canary through the router answered 504.")

    monkeypatch.setattr("pdctl.flows.drill.run.router_canary", silent)
    sent = SimpleNamespace(outcomes=lambda ids, deadline: [""] * len(ids), end=lambda *_: None)
    fleet = SimpleNamespace(router=SimpleNamespace(kind="bundled"))
    row = Row("kill-engine", undone=1.0)
    scene: Any = SimpleNamespace(ctx=SimpleNamespace(fleet=fleet), sent=sent)
    _served(scene, DRILLS["kill-engine"], row, ["a", "b"])
    assert row.undone is None and row.answered == 2 and row.wrong[0].startswith("not undone: The canary")


def test_drills_are_chosen_by_name_or_all_and_a_mistyped_one_is_told() -> None:
    assert [d.name for d in chosen(["kill-engine", "lose-want"], False)] == ["lose-want", "kill-engine"]
    assert len(chosen([], True)) == len(DRILLS) >= 11
    for names, every in (([], False), (["lose-want"], True)):
        with pytest.raises(ConfigError, match="or give --all"):
            chosen(names, every)
    with pytest.raises(ConfigError, match="lose-want"):
        chosen(["loose-want"], False)


@pytest.mark.parametrize(
    ("row", "stopped", "skipped"),
    [
        (Row("lose-want"), "what was played is undone", "it was interrupted"),
        (
            Row("kill-engine", evidence="gone", took=1.0),
            "what was played is undone; whether everything serves again behind kill-engine was not seen: "
            "`pdctl diagnose`",
            "",
        ),
        (Row("kill-engine", evidence="gone", took=1.0, undone=2.0), "what was played is undone", ""),
    ],
)
def test_behind_ctrl_c_the_board_says_what_stands(
    row: Row, stopped: str, skipped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_folder(tmp_path / "model")
    init_fleet(tmp_path / "fleet.toml", Wanted("test", str(tmp_path / "model"), drill=True, profile="drill"))

    def played(ctx: Context, drills: object, on: object, board: Board) -> None:
        board.rows.append(row)
        raise KeyboardInterrupt

    monkeypatch.setattr(drill_run, "_all", played)
    monkeypatch.setattr(drill_run, "need_serving", lambda ctx, what: None)
    with Context(load_fleet(tmp_path / "fleet.toml")) as ctx:
        board = drill_run.run(ctx, [DRILLS[row.name]])
        assert (board.exit, board.stopped, row.skipped) == (Exit.INTERRUPTED, stopped, skipped)
        # While something is not put back nothing can be said of what stands.
        record.write(ctx.fleet, record.Record())
        monkeypatch.setattr(drill_run, "restore", lambda ctx: Restored())
        with pytest.raises(KeyboardInterrupt):
            drill_run.run(ctx, [DRILLS[row.name]])


def test_only_its_own_profile_makes_a_fleet_drillable(tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    init_fleet(tmp_path / "fleet.toml", Wanted("test", str(tmp_path / "model"), decodes=2))
    fleet = load_fleet(tmp_path / "fleet.toml")
    folder = fleet.paths.profiles
    assert [n for n in ("default", "production", "drill") if load_profile(folder, n).drillable] == ["drill"]
    (folder / "mine.toml").write_text('schema = 1\nname = "mine"\nextends = "drill"\n')
    assert not load_profile(folder, "mine").drillable
    prefill, decode, chosen_one = edge_of(fleet, "decode-1")
    assert (prefill.name, decode.name) == ("prefill-0", "decode-1") and chosen_one == decode


def test_a_drill_has_a_line_in_the_record_of_its_run() -> None:
    assert Row("stall-transfer", detected="PD101 prefill-0", took=3.25).said == "PD101 prefill-0 after 3.25 s"
    assert Row("kill-engine", wrong=["it took no effect within 60 s"]).said.startswith("WRONG, it took no")
    assert Row("relink", skipped="there is one edge").said == "not played, there is one edge"
