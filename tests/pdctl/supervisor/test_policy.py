"""policy.toml: what is otherwise than shipped, key by key, and every mistake with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pdctl.diagnose.rules import BY_CODE
from pdctl.errors import ConfigError
from pdctl.flows.deploy.supervisor import WATCHDOG
from pdctl.supervisor.policy import Act, load_policy

BAD = """schema = 1
[supervisor]
mode = "acts"
look_evry = 3.0
[on.PD502.co-restart]
after = -1.0
[on.PD5022.co-restart]
after = 1.0
[on.PD501.corestart]
after = 3.0
[quiet.night]
from = "25:00"
zone = "Mars"
[notify.ops]
[notify.hook]
webhook = "ftp://x"
[notify.port]
webhook = "https://chat.example:port/x"
[notify.key]
webhook = "https://chat.example/x"
secret = "absent"
[actions.abort]
backoff = inf
[notify.twice]
webhook = "http://x/"
command = ["x"]
"""


def test_the_shipped_policy_is_careful(tmp_path: Path) -> None:
    policy = load_policy(tmp_path / "none.toml")
    assert set(policy.on) <= set(BY_CODE) and set(policy.actions) == {a.value for a in Act}
    for code in policy.on:
        for act, rung in policy.rungs(code):
            assert rung.after >= 10
            assert act is not Act.CO_RESTART or policy.needs_proof(act, rung)
            assert act is not Act.RELINK or code in ("PD501", "PD502")
    assert policy.actions["co-restart"].tries <= 2 and policy.actions["co-restart"].per_hour <= 2


def test_what_is_written_wins_key_by_key(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('schema = 1\n[on.PD502.co-restart]\nproof = "none"\n[actions.abort]\nper_hour = 1\n')
    policy, shipped = load_policy(path), load_policy(tmp_path / "none.toml")
    act, rung = policy.rungs("PD502")[-1]
    assert rung.after == shipped.rungs("PD502")[-1][1].after and not policy.needs_proof(act, rung)
    assert policy.actions["abort"].per_hour == 1
    assert policy.actions["abort"].tries == shipped.actions["abort"].tries
    assert policy.supervisor == shipped.supervisor


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (3, r"supervisor\.mode: must be one of act, dry-run, watch\. Did you mean act\?"),
        (4, r"supervisor\.look_evry: unknown key\. Did you mean look_every\?"),
        (6, r"on\.PD502\.co-restart\.after: must be at least 0"),
        (7, r"on\.PD5022: there is no such finding\. Did you mean PD522\?"),
        (9, r"on\.PD501\.corestart: must be one of .*Did you mean co-restart\?"),
        (11, r"quiet\.night\.to: is missing"),
        (12, r"quiet\.night\.from: must be a time of day"),
        (13, r"quiet\.night\.zone: is no time zone"),
        (14, r"notify\.ops: needs one of webhook and command"),
        (16, r"notify\.hook\.webhook: must begin with http"),
        (18, r"notify\.port\.webhook: is no address such as"),
        (21, r"notify\.key\.secret: The token .*absent cannot be read"),
        (24, r"notify\.twice: needs one of webhook and command"),
        (23, r"actions\.abort\.backoff: .* finite number"),
    ],
)
def test_every_mistake_is_told_with_its_line(tmp_path: Path, line: int, words: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(BAD)
    with pytest.raises(ConfigError) as caught:
        load_policy(path)
    assert any(re.match(rf"{path}:{line}: {words}", d) for d in caught.value.details), caught.value.details


def test_a_page_has_an_address_and_looks_are_more_often_than_the_watchdog_waits(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("schema = 1\n[supervisor]\nlook_every = 61.0\n")
    with pytest.raises(ConfigError) as caught:
        load_policy(path)
    assert caught.value.details == (f"{path}:3: supervisor.look_every: must be at most 60.0.",)
    path.write_text('schema = 1\n[supervisor]\npage = "9470"\n')
    with pytest.raises(ConfigError) as caught:
        load_policy(path)
    assert caught.value.details == (f"{path}:3: supervisor.page: '9470' is no ADDRESS:PORT.",)
    path.write_text("schema = 1\n[supervisor]\nlook_every = 60.0\n")
    assert 3 * load_policy(path).supervisor.look_every <= WATCHDOG


def test_text_that_is_no_toml(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("schema = \n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_policy(path)
