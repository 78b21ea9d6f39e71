"""Which drills there are, how they are named, and on which fleets."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.diagnose.rules import BY_CODE
from pdctl.errors import ConfigError
from pdctl.fleet.load import load_fleet
from pdctl.fleet.profile import load_profile
from pdctl.flows.drill.catalogue import DRILLS, chosen
from pdctl.flows.drill.gate import edge_of
from pdctl.flows.init import Wanted, init_fleet
from tests.pdctl.models import model_folder


def test_what_a_drill_expects_is_a_rule() -> None:
    assert {code for drill in DRILLS.values() for code in drill.codes} <= BY_CODE.keys()


def test_drills_are_chosen_by_name_or_all_and_a_mistyped_one_is_told() -> None:
    assert [d.name for d in chosen(["kill-engine", "lose-want"], False)] == ["lose-want", "kill-engine"]
    assert len(chosen([], True)) == len(DRILLS) >= 11
    for names, every in (([], False), (["lose-want"], True)):
        with pytest.raises(ConfigError, match="or give --all"):
            chosen(names, every)
    with pytest.raises(ConfigError, match="lose-want"):
        chosen(["loose-want"], False)


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
