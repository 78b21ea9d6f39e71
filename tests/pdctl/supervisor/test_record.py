"""What looks become: kept and shown, whatever is wrong with file or page."""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Fleet
from pdctl.flows.init import Wanted, init_fleet
from pdctl.supervisor.observation import Observation
from pdctl.supervisor.record import Record
from pdctl.supervisor.series import Series
from tests.pdctl.models import model_folder
from tests.pdctl.supervisor.looks import look


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    init_fleet(tmp_path / "fleet.toml", Wanted("test", str(model_folder(tmp_path / "model"))))
    return load_fleet(str(tmp_path / "fleet.toml"))


def now(number: int = 0) -> Observation:
    return replace(look(time.time() + 5 * number), monotonic=time.monotonic())


def test_a_look_is_in_the_history_and_on_the_pages(fleet: Fleet) -> None:
    said: list[str] = []
    with Record(fleet, said.append, page="127.0.0.1:0") as record:
        kept = record.keep(now())
        assert record.live.look is kept and record.pages is not None
        with httpx.Client(trust_env=False, verify=False) as client:
            assert client.get(f"{record.pages.url}/api/now").json()["at"] == kept.at
    assert Series(fleet.paths.supervisor).newest() == int(kept.at)
    assert said == [f"pages: {record.pages.url}"]


def test_a_file_that_cannot_be_used_is_said_once_and_the_looking_goes_on(fleet: Fleet) -> None:
    fleet.paths.supervisor.write_bytes(b"no database " * 100)
    said: list[str] = []
    with Record(fleet, said.append) as record:
        record.keep(now())
    (sentence,) = said
    assert "it is damaged" in sentence and "put aside as supervisor.db.aside-" in sentence
    with Record(fleet, said.append) as record:
        record.keep(now(1))
    assert len(said) == 1 and Series(fleet.paths.supervisor).newest() is not None


def test_a_history_that_cannot_be_written_is_said_once_and_again_when_it_can(fleet: Fleet) -> None:
    said: list[str] = []
    with Record(fleet, said.append) as record:
        harm = sqlite3.connect(fleet.paths.supervisor)
        harm.execute(
            "CREATE TRIGGER full BEFORE INSERT ON samples BEGIN SELECT RAISE(FAIL, 'disk is full'); END"
        )
        for number in range(3):
            assert record.keep(now(number)) is record.live.look
        assert said == ["This look is not in the history: disk is full. The supervisor goes on looking."]
        assert list(record.live.troubles.values()) == said
        harm.execute("DROP TRIGGER full")
        record.keep(now(4))
    assert said[1:] == ["the history is well again"] and record.live.troubles == {}


def test_a_page_that_cannot_be_had_is_said_once_and_there_once_its_port_is_free(fleet: Fleet) -> None:
    """As where the supervisor that had it has ended later than this one began."""
    said: list[str] = []
    with ExitStack() as stack:
        with Record(fleet, said.append, page="127.0.0.1:0") as first:
            assert first.pages is not None
            url = first.pages.url
            second = stack.enter_context(Record(fleet, said.append, page=url.removeprefix("http://")))
            second.keep(now())
            assert second.pages is None and "Address already in use" in second.live.troubles["page"]
        second.keep(now(1))
        assert second.pages is not None and second.pages.url == url and not second.live.troubles
        with httpx.Client(trust_env=False, verify=False) as client:
            assert client.get(f"{url}/healthz").status_code == 200
    assert "Address already in use" in said[1]
    assert said[2:] == ["the page is well again", f"pages: {url}"]
