"""A hold that an interrupt meets at its worst moment is taken back all the same."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from pdctl.fleet.load import load_fleet
from pdctl.flows import admin
from pdctl.flows.co_restart.hold import Admissions
from pdctl.flows.context import Context
from pdctl.flows.init import Wanted, init_fleet
from tests.pdctl.models import model_folder


class Router:
    """What a router remembers of a hold."""

    def __init__(self) -> None:
        self.admission = "open"

    def state(self, *_: object) -> dict[str, Any]:
        return {"admission": self.admission, "incarnation": "a life", "engines": []}

    def post(self, ctx: Context, url: str, verb: str, *_: object, **__: object) -> dict[str, Any]:
        self.admission = {"hold": "held", "resume": "open"}[verb]
        return {}


def test_an_interrupt_before_the_watch_runs_leaves_no_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = Router()
    monkeypatch.setattr(admin, "state", router.state)
    monkeypatch.setattr(admin, "post", router.post)
    init_fleet(tmp_path / "fleet.toml", Wanted("f", str(model_folder(tmp_path / "model"))))
    fleet = load_fleet(tmp_path / "fleet.toml")
    admissions = Admissions(Context(fleet), fleet.cells["a"], alone=True, notes=[])

    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as now, pytest.raises(KeyboardInterrupt):
        now.setattr(threading.Thread, "start", interrupted)
        admissions.hold(1.0)
    assert router.admission == "held"
    assert admissions.take_back(1.0) and router.admission == "open"
