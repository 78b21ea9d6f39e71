"""What the supervisor looks after, as the fleet file has it, and how much of it the rules are asked about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Cell, Fleet
from pdctl.flows.init import Wanted, init_fleet
from pdctl.flows.supervise.daemon import roster
from pdctl.flows.supervise.judging import narrowed
from tests.pdctl.models import model_folder


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    model_folder(tmp_path / "model")
    init_fleet(tmp_path / "fleet.toml", Wanted("test", str(tmp_path / "model"), drill=True))
    return load_fleet(tmp_path / "fleet.toml")


def test_the_rules_look_at_the_cells_that_are_asked_for(fleet: Fleet) -> None:
    hosts = fleet.hosts | {name: replace(fleet.hosts["local"], name=name) for name in ("h1", "h2")}
    engines = {
        c: replace(e, cell=c, host=h) for c, h, e in zip("ab", ("h1", "h2"), fleet.engines(), strict=True)
    }
    both = replace(fleet, hosts=hosts, cells={c: Cell(c, (e,)) for c, e in engines.items()})
    alone = narrowed(both, {"b"})
    assert list(alone.cells) == ["b"] and set(alone.hosts) == {"h2", "local"}, "the router's host stays"
    assert narrowed(both, {"a", "b"}) is both and narrowed(both, {"b", ""}) is both
    assert roster(both).cells == {"a": ("prefill-0",), "b": ("decode-0",)}


def test_a_cell_that_keeps_a_dead_life_is_restarted_as_a_pair_and_not_linked_anew(fleet: Fleet) -> None:
    assert (roster(fleet).pairs, roster(fleet).relinks) == (frozenset(), frozenset({"a"}))
    text = fleet.path.read_text()
    fleet.path.write_text(text.replace('role = "prefill"', 'role = "prefill"\nlegacy_bootstrap = true'))
    kept = load_fleet(fleet.path)
    assert (roster(kept).pairs, roster(kept).relinks) == (frozenset({"a"}), frozenset())
