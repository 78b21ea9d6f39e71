"""What of looks is kept, for how long, and what becomes of a file that cannot be used."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.adapters.picture import Reach
from pdctl.errors import ConfigError
from pdctl.supervisor.history import History, Tier
from pdctl.supervisor.incidents import Incidents
from pdctl.supervisor.observation import requests_waiting
from pdctl.supervisor.series import Series
from pdctl.supervisor.store import SCHEMA, prepare
from pdctl.supervisor.trend import Trends
from tests.pdctl.supervisor.looks import engine, look, moved

T0 = 1_800_000_000  # the begin of a quarter of an hour


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "state" / "supervisor.db"
    assert prepare(path) == ""
    return path


def counts(path: Path) -> dict[int, int]:
    db = sqlite3.connect(path)
    found = dict(db.execute("SELECT tier, count(*) FROM looks GROUP BY tier").fetchall())
    db.close()
    return found


def test_a_look_becomes_rows_of_engines_router_cell_host_and_fleet(path: Path) -> None:
    history = History(path)
    decode = engine("decode-0")
    history.record(look(T0, engine(), decode))
    history.record(look(T0 + 5, engine(), moved(decode, 100)))
    series = Series(path)
    columns = ("up", "waiting", "inflight", "oldest", "kv", "decode_rate")
    prefill = series.read("engine", ["prefill-0"], columns, T0, T0 + 5)["prefill-0"]
    # Recorded: two requests prefill, one is inflight for 0.788 s, 30 of 1,023 pages are held.
    assert prefill == [
        (T0, [1.0, 3.0, 1.0, 0.79, 0.0293, None]),
        (T0 + 5, [1.0, 3.0, 1.0, 0.79, 0.0293, 0.0]),
    ]
    assert series.read("engine", ["decode-0"], ["decode_rate"], T0, T0 + 5)["decode-0"][1] == (T0 + 5, [20.0])
    assert series.read("cell", ["a"], ["decode_rate"], T0, T0 + 5)["a"][1] == (T0 + 5, [20.0])
    # Two of the prefill's three wait on decode too, and each is one request.
    for kind, name in (("cell", "a"), ("fleet", "test")):
        assert series.read(kind, [name], ["waiting"], T0, T0)[name] == [(T0, [3.0])]
    assert series.read("fleet", ["test"], ["up"], T0, T0 + 5)["test"][0] == (T0, [1.0])
    assert series.read("host", ["local"], ["up"], T0, T0 + 5)["local"][0] == (T0, [1.0])
    assert series.subjects("router") == ["router"] and series.newest() == T0 + 5


def test_a_leg_that_is_not_listed_counts_as_a_request() -> None:
    """Kinds that show how many wait, and not which."""
    prefill, decode = engine(), engine("decode-0")
    assert (prefill.waiting, decode.waiting, requests_waiting([prefill, decode])) == (3, 2, 3)
    assert requests_waiting([prefill, replace(decode, waits=frozenset())]) == 5


def test_one_that_does_not_answer_is_down_and_nothing_else_is_known_of_it(path: Path) -> None:
    history = History(path)
    gone = replace(engine(), reach=Reach.REFUSED, queues={}, progress=None, pages=None)
    history.record(look(T0, gone, engine("decode-0")))
    series = Series(path)
    assert series.read("engine", ["prefill-0"], ["up", "waiting"], T0, T0)["prefill-0"] == [(T0, [0.0, None])]
    assert series.read("cell", ["a"], ["up"], T0, T0)["a"] == [(T0, [0.0])]
    assert series.read("fleet", ["test"], ["up"], T0, T0)["test"] == [(T0, [0.5])]


def test_a_new_life_is_written_down_and_its_counters_are_no_rate(path: Path) -> None:
    history = History(path)
    old = engine("decode-0")
    new = replace(moved(old, 1000), incarnation="0123456789abcdef")
    for at, each in ((T0, old), (T0 + 5, new), (T0 + 10, moved(new, 50))):
        history.record(look(at, each))
    series = Series(path)
    rates = [
        values[0]
        for _, values in series.read("engine", ["decode-0"], ["decode_rate"], T0, T0 + 10)["decode-0"]
    ]
    assert rates == [None, None, 10.0]
    lives = series.lives(T0, T0 + 10)
    assert [(life.at, life.incarnation) for life in lives] == [
        (T0 + 5, new.incarnation),
        (T0, old.incarnation),
    ]
    history.close()
    History(path).record(look(T0 + 15, new))  # a successor knows the life
    assert len(series.lives(T0, T0 + 20)) == 2


def test_minutes_keep_the_worst_of_a_queue_and_the_mean_of_a_rate(path: Path) -> None:
    history = History(path)
    decode, tokens = engine("decode-0"), 0
    for number in range(13):
        tokens += 100 if number % 2 else 0
        deep = replace(decode, queues={"waiting": replace(decode.queues["waiting"], depth=number)})
        history.record(look(T0 + 5 * number, moved(deep, tokens)))
    db = sqlite3.connect(path)
    row = db.execute(
        "SELECT s.at, waiting, decode_rate FROM samples s JOIN subjects u ON u.id = s.subject"
        " WHERE tier = 60 AND u.name = 'decode-0'"
    ).fetchall()
    assert row == [(T0, 11.0, pytest.approx(600 / 55, abs=0.01))]


def test_what_is_kept_is_counted_in_looks(path: Path) -> None:
    history = History(path, tiers=(Tier(0, 20), Tier(60, 5), Tier(900, 3)))
    for minute in range(75):
        for second in (0, 20, 40):
            history.record(look(T0 + 60 * minute + second))
    assert counts(path) == {0: 20, 60: 5, 900: 3}


def test_a_wall_clock_that_jumps_ages_nothing(path: Path) -> None:
    history = History(path)
    year = 365 * 86400
    for at in (T0, T0 + 5, T0 + year, T0 + year + 5, T0 + 10, T0 + 15):
        history.record(look(at))
    assert counts(path)[0] == 6
    assert [at for at, _ in Series(path).read("cell", ["a"], ["up"], T0, T0 + 60)["a"]] == [
        T0,
        T0 + 5,
        T0 + 10,
        T0 + 15,
    ]


def test_a_clock_that_was_ahead_for_long_leaves_room_for_what_comes_when_it_is_right(path: Path) -> None:
    history = History(path, tiers=(Tier(0, 20), Tier(60, 5), Tier(900, 3)))
    for number in range(30):
        history.record(look(T0 + 7200 + 5 * number))
    for number in range(15):
        history.record(look(T0 + 5 * number))
    assert counts(path)[0] == 20
    assert len(Series(path).read("cell", ["a"], ["up"], T0, T0 + 75)["a"]) == 15


def test_a_series_is_read_from_the_tier_that_reaches_back_and_ends_with_the_newest_look(path: Path) -> None:
    history = History(path, tiers=(Tier(0, 12), Tier(60, 1440), Tier(900, 2880)))
    for number in range(40):
        history.record(look(T0 + 15 * number))  # ten minutes, of which the last three have looks
    found = [at for at, _ in Series(path).read("cell", ["a"], ["up"], T0, T0 + 900)["a"]]
    assert found[:9] == [T0 + 60 * minute for minute in range(9)] and found[9:] == [
        T0 + 540 + 15 * n for n in range(4)
    ]
    fine = [at for at, _ in Series(path).read("cell", ["a"], ["up"], T0 + 500, T0 + 900)["a"]]
    assert fine[0] == T0 + 510 and fine[-1] == T0 + 585
    young = Series(path).read("cell", ["a"], ["up"], T0 - 86400, T0 + 900, points=6)["a"]
    assert len(young) <= 6 and young[-1][0] == T0 + 585


def test_no_file_is_no_history(tmp_path: Path) -> None:
    series = Series(tmp_path / "none.db")
    assert series.newest() is None and series.subjects("cell") == [] and series.lives(0, 1) == []
    assert series.read("cell", ["a"], ["up"], 0, 1) == {"a": []}


def test_a_look_that_cannot_be_written_is_wholly_absent(path: Path) -> None:
    history = History(path)
    history.record(look(T0))
    reader = sqlite3.connect(path)
    reader.execute("CREATE TRIGGER full BEFORE INSERT ON samples BEGIN SELECT RAISE(FAIL, 'disk'); END")
    with pytest.raises(sqlite3.Error):
        history.record(look(T0 + 5, engine(), replace(engine(), name="new")))
    reader.execute("DROP TRIGGER full")
    assert Series(path).newest() == T0
    history.record(look(T0 + 10, engine(), replace(engine(), name="new")))
    assert Series(path).read("engine", ["new"], ["up"], T0, T0 + 10)["new"] == [(T0 + 10, [1.0])]


@pytest.mark.parametrize("harm", ["garbage", "torn", "newer"])
def test_a_file_that_cannot_be_used_is_put_aside_whole(path: Path, harm: str) -> None:
    history = History(path)
    for number in range(200):
        history.record(look(T0 + 5 * number))
    history.close()
    if harm == "garbage":
        path.write_bytes(b"not a database, " * 1000)
    elif harm == "torn":
        data = bytearray(path.read_bytes())
        data[8192:40000] = b"\xff" * (40000 - 8192)
        path.write_bytes(data)
    else:
        db = sqlite3.connect(path)
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
        db.close()
    before = path.read_bytes()
    said = prepare(path)
    (aside,) = (p for p in path.parent.glob("*.aside-*") if not p.name.endswith(("-wal", "-shm")))
    assert aside.read_bytes() == before and aside.name in said
    assert ("a newer pdctl wrote it" if harm == "newer" else "it is damaged") in said
    assert prepare(path) == ""  # once, not at every start
    History(path).record(look(T0))
    assert Series(path).newest() == T0


def test_the_file_is_its_owners_alone_and_holds_incidents_too(path: Path) -> None:
    incidents = Incidents(path)
    incidents.begin("a", "decode-0", ["PD201"], "broken", "down", at=T0)
    History(path).record(look(T0))
    assert path.stat().st_mode & 0o077 == 0
    assert prepare(path) == "" and Series(path).newest() == T0
    assert Incidents(path, read_only=True).one(1) is not None


def test_a_file_that_breaks_after_it_was_opened_is_a_sentence(path: Path) -> None:
    history = History(path)
    for number in range(200):
        history.record(look(T0 + 5 * number))
    history.close()
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xff" * (len(data) - 8192)
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"cannot be read: .*malformed"):
        Series(path).read("cell", ["a"], ["up"], T0, T0 + 1000)
    trends = Trends(path)
    trends.add(look(T0 + 1000))
    assert trends.lines("cell", ["a"], ["up"], 5, T0 + 1000) == {("a", "up"): [None, None, None, None, 1.0]}
