"""What `pdctl status` says of pictures that running engines really gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pdctl.adapters.bundled import engine_sample, router_sample
from pdctl.adapters.picture import Reach
from pdctl.adapters.probe import Answer
from pdctl.fleet.load import load_fleet
from pdctl.flows.init import Wanted, init_fleet
from pdctl.flows.status import EngineStatus, FleetStatus
from pdctl.render.status import show_status
from pdctl.units.spec import UnitStatus
from tests.pdctl.models import model_folder

RECORDED = Path(__file__).parents[2] / "cases/bundles/healthy/recorded-busy"


def answer(party: str, without: str = "") -> Answer:
    body: dict[str, Any] = json.loads((RECORDED / party / "state.1.json").read_text())
    if without:
        body["engines"] = [e for e in body["engines"] if e["instance"] != without]
    return Answer(Reach.OK, body, "", 0.0)


def status(tmp_path: Path, router_without: str = "") -> FleetStatus:
    model_folder(tmp_path / "model")
    if not (tmp_path / "fleet.toml").exists():
        init_fleet(tmp_path / "fleet.toml", Wanted("test", str(tmp_path / "model")))
    fleet = load_fleet(tmp_path / "fleet.toml")
    engines = tuple(
        EngineStatus(e, UnitStatus(e.name, "active", ""), "r1", engine_sample(answer(e.name)))
        for e in fleet.engines()
    )
    front = router_sample(answer("router", router_without), Answer(Reach.REFUSED, None, "", 0.0))
    unit = UnitStatus("router", "active", "")
    return FleetStatus("test", 0.0, 0.1, fleet.router, unit, front, engines)


def test_engines_that_the_router_was_never_told_of_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    well = status(tmp_path)
    assert well.healthy and well.document()["strangers"] == []
    show_status(well)
    assert "never told of" not in capsys.readouterr().out
    odd = status(tmp_path, router_without="decode-0")
    assert not odd.healthy and odd.document()["strangers"] == ["decode-0"]
    show_status(odd)
    said = capsys.readouterr().out.splitlines()
    assert said[-2:] == [
        "router was never told of decode-0 and sends nothing there.",
        "`pdctl diagnose` says why.",
    ]
