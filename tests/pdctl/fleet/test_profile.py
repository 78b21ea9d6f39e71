"""Profiles: layering, origin, who reads what, and the order in which deadlines must fire."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.__main__ import LEVELS
from engine.core.settings import BY_NAME, ORDER, OTHER_ENV, SETTINGS
from pdctl.errors import ConfigError
from pdctl.fleet.catalogue import deadline_order, known, other_names, unit_problem
from pdctl.fleet.chain import INFLIGHT, TOTAL, TRANSFER, chain_problems
from pdctl.fleet.check.run import check_profiles
from pdctl.fleet.edit import set_value, set_verified
from pdctl.fleet.load import load_fleet
from pdctl.fleet.order import refuse_disorder
from pdctl.fleet.profile import engine_env, load_profile, profile_names
from pdctl.fleet.schema import Verified

ROOT = Path(__file__).parents[3]


def test_the_catalogue_is_what_the_engine_declares() -> None:
    declared = {s.env: (s.name, s.unit, s.low, s.high, s.default, s.side, s.live, s.reason) for s in SETTINGS}
    shipped = {
        v.key: (v.name, v.unit, v.low, v.high, v.default, v.side, v.live, v.does) for v in known().values()
    }
    assert shipped == declared
    assert other_names() == set(OTHER_ENV)
    assert [unit_problem("PD_LOG_LEVEL", level) for level in LEVELS] == [""] * len(LEVELS)
    assert deadline_order() == tuple((BY_NAME[i].env, BY_NAME[o].env, why) for i, o, why in ORDER)


@pytest.mark.parametrize(("name", "inflight"), [("default", "120"), ("production", "60"), ("drill", "30")])
def test_a_shipped_profile_is_in_order_and_says_why(profiles: Path, name: str, inflight: str) -> None:
    profile = load_profile(profiles, name)
    assert profile.values[INFLIGHT].value == inflight
    numbers = profile.numbers()
    assert numbers[TRANSFER] < numbers[INFLIGHT] < numbers[TOTAL]
    assert chain_problems(numbers) == []
    assert set(profile.values) == set(known())
    assert all(len(v.reason) > 30 for v in profile.values.values())
    assert not any(v.is_verified for v in profile.values.values())
    for env, value in profile.values.items():
        file, _, test = value.proved_by.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {test}(" in text and (env in text or known()[env].name in text), env


def test_values_come_from_the_nearest_profile_with_their_place(profiles: Path) -> None:
    profile = load_profile(profiles, "production")
    assert profile.chain == ("production", "default")
    assert profile.values["PD_QUEUE_TIMEOUT"].profile == "default"
    line = next(
        n
        for n, text in enumerate((profiles / "production.toml").read_text().splitlines(), 1)
        if INFLIGHT in text
    )
    assert profile.values[INFLIGHT].origin == f"profile production ({profiles / 'production.toml'}:{line})"


def test_each_role_gets_what_it_reads(profiles: Path) -> None:
    profile = load_profile(profiles, "default")
    assert INFLIGHT in profile.env_for("prefill") and INFLIGHT not in profile.env_for("decode")
    assert TRANSFER in profile.env_for("decode") and TRANSFER not in profile.env_for("prefill")
    assert {INFLIGHT, TRANSFER} <= set(profile.env_for("both"))
    assert all(n.startswith("PD_ROUTER_") for n in profile.env_for("router"))


def test_the_fleet_file_wins_over_the_profile(write_fleet: Callable[..., Path]) -> None:
    path = write_fleet(("port = 8103", 'port = 8103\nenv = { PD_HEARTBEAT_TIMEOUT = "7", UCX_TLS = "tcp" }'))
    fleet = load_fleet(path)
    env = engine_env(fleet, fleet.engine("decode-0"))
    assert (env["PD_HEARTBEAT_TIMEOUT"].value, env["PD_HEARTBEAT_TIMEOUT"].origin) == ("7", f"{path}:23")
    assert env["UCX_TLS"].value == "tcp"
    assert engine_env(fleet, fleet.engine("prefill-0"))["PD_HEARTBEAT_TIMEOUT"].value == "5"


def test_a_unit_s_log_level_is_set_in_the_fleet_file(write_fleet: Callable[..., Path]) -> None:
    fleet = load_fleet(write_fleet(("port = 8103", 'port = 8103\nenv = { PD_LOG_LEVEL = "debug" }')))
    assert engine_env(fleet, fleet.engine("decode-0"))["PD_LOG_LEVEL"].value == "debug"
    assert not [f for f in check_profiles(fleet) if f.name == "PD_LOG_LEVEL"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('value = "60"', 'value = "x"', "must be a number of seconds"),
        ('value = "60"', 'value = "0"', "must be 0.05 to 86400 seconds"),
        (
            'side = "prefill"',
            'side = "decode"',
            "must be prefill: that is who reads PD_PREFILL_INFLIGHT_TIMEOUT",
        ),
        ("PD_ROUTER_IDLE_TIMEOUT", "PD_ROUTER_IDEL_TIMEOUT", "Did you mean PD_ROUTER_IDLE_TIMEOUT?"),
        ("PD_ROUTER_IDLE_TIMEOUT", "PD_FLEET_TOKEN_FILE", "is written by pdctl"),
        ("PD_ROUTER_IDLE_TIMEOUT", "PD_LOG_LEVEL", "is of one unit: set it in `env` of the unit"),
        ('name = "production"', 'name = "prod"', "must be production, as the file is called."),
    ],
)
def test_a_wrong_profile_is_told_by_line(profiles: Path, old: str, new: str, problem: str) -> None:
    path = profiles / "production.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_profile(profiles, "production")
    assert any(problem in line and line.startswith(f"{path}:") for line in caught.value.details)


def test_a_circle_and_an_unknown_profile_are_sentences(profiles: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_profile(profiles, "productoin")
    assert caught.value.hint == "Did you mean production?"
    path = profiles / "default.toml"
    path.write_text(path.read_text().replace('name = "default"', 'name = "default"\nextends = "production"'))
    with pytest.raises(ConfigError, match="production -> default -> production"):
        load_profile(profiles, "production")


def test_set_keeps_comments_and_marks_unverified(profiles: Path) -> None:
    path = profiles / "default.toml"
    path.write_text("# a remark\n" + path.read_text())
    record = Verified(value="120", at="2026-01-01T00:00:00Z", by="a@b", fired_after_s=1.1, evidence="e.json")
    set_verified(profiles, "default", INFLIGHT, record)
    assert load_profile(profiles, "default").values[INFLIGHT].is_verified
    change = set_value(profiles, "default", INFLIGHT, "110", "p99 dwell is 4 s", "me@here")
    assert (change.old, change.new, change.side) == ("120", "110", "prefill")
    text = path.read_text()
    assert text.startswith("# a remark\n")
    assert 'evidence = "e.json"\n\n[values.PD_START_TIMEOUT]' in text
    value = load_profile(profiles, "default").values[INFLIGHT]
    assert value.reason == "p99 dwell is 4 s"
    assert value.verified == record
    assert not value.is_verified
    assert 'author = "me@here"' in text
    assert set(profile_names(profiles)) == {"default", "drill", "dsv4-sm120", "production"}


def test_set_copies_an_inherited_value_into_the_profile_named(profiles: Path) -> None:
    before = (profiles / "default.toml").read_text()
    set_value(profiles, "production", "PD_QUEUE_TIMEOUT", "200", "shorter queues", "me@here")
    assert load_profile(profiles, "production").values["PD_QUEUE_TIMEOUT"].profile == "production"
    assert (profiles / "default.toml").read_text() == before


@pytest.mark.parametrize(
    ("env", "value", "reason", "code"),
    [
        (INFLIGHT, "99", "why", "out_of_order"),
        (INFLIGHT, "-1", "why", "bad_value"),
        (INFLIGHT, "130", "  ", "no_reason"),
        ("PD_NOPE", "1", "why", "unknown_variable"),
        ("PD_LOG_LEVEL", "debug", "why", "not_in_profile"),
        ("HF_HOME", "/srv/hf", "why", "no_side"),
        ("HF_TOKEN", "hf_abcdefghijklmnopqrstuv", "why", "plain_secret"),
    ],
)
def test_a_wrong_set_changes_nothing(profiles: Path, env: str, value: str, reason: str, code: str) -> None:
    before = (profiles / "default.toml").read_text()
    with pytest.raises(ConfigError) as caught:
        set_value(profiles, "default", env, value, reason, "me@here")
    assert caught.value.code == code
    assert (profiles / "default.toml").read_text() == before


@pytest.mark.parametrize(("value", "first"), [("99", TRANSFER), ("800", "PD_ROUTER_IDLE_TIMEOUT")])
def test_a_value_out_of_order_names_what_goes_first(profiles: Path, value: str, first: str) -> None:
    with pytest.raises(ConfigError) as caught:
        set_value(profiles, "default", INFLIGHT, value, "why", "me@here")
    assert first in caught.value.hint.partition(" first, ")[0]


def test_a_foreign_variable_needs_its_side_once(profiles: Path) -> None:
    set_value(profiles, "default", "HF_HOME", "/srv/hf", "one disk", "me@here", side="both")
    set_value(profiles, "default", "HF_HOME", "/srv/models", "another disk", "me@here")
    assert load_profile(profiles, "default").env_for("decode")["HF_HOME"].value == "/srv/models"


def test_the_side_of_a_foreign_variable_is_in_the_catalogue(profiles: Path) -> None:
    env = "SGLANG_DISAGGREGATION_WAITING_TIMEOUT"
    set_value(profiles, "dsv4-sm120", env, "50", "below the watchdog", "me@here")
    profile = load_profile(profiles, "dsv4-sm120")
    assert env in profile.env_for("decode") and env not in profile.env_for("prefill")
    assert profile.values[env].author == "me@here" and profile.values[env].date


def test_a_fleet_whose_deadlines_are_out_of_order_is_refused_by_line(
    write_fleet: Callable[..., Path], profiles: Path
) -> None:
    """Every edge, with what each of its units would be started with."""
    refuse_disorder(load_fleet(write_fleet()))
    own = write_fleet(("port = 8103", f'port = 8103\nenv = {{ {TRANSFER} = "120", PD_QUEUE_TIMEOUT = "9" }}'))
    with pytest.raises(ConfigError) as caught:
        refuse_disorder(load_fleet(own))
    (line,) = caught.value.details
    assert line.startswith(
        f"{own}:23: {TRANSFER}=120 of decode-0 must be below {INFLIGHT}=120 of prefill-0: "
    )
    assert f" The other is at {profiles / 'default.toml'}:" in line

    path = profiles / "default.toml"
    text = path.read_text()
    path.write_text(text.replace('"150"', '"700"'))
    with pytest.raises(ConfigError) as caught:
        refuse_disorder(load_fleet(write_fleet()))
    (line,) = caught.value.details
    at = next(n for n, row in enumerate(text.splitlines(), 1) if "values.PD_ROUTER_IDLE_TIMEOUT" in row)
    assert line.startswith(
        f"{path}:{at}: PD_ROUTER_IDLE_TIMEOUT=700 of router must be below {TOTAL}=600 of router"
    )
