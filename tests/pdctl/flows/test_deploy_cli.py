"""`pdctl deploy` and `pdctl rollback` as they are called: exit codes, what is shown, complete JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pdctl.__main__ import main
from tests.pdctl.flows.conftest import Bench


@pytest.fixture
def cli(bench: Bench, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> tuple[int, str]:
        code = main(["--fleet", str(bench.path), *words])
        return code, capsys.readouterr().out

    return run


def test_a_plan_is_a_diff_of_each_host_and_changes_nothing(bench: Bench, cli: Any) -> None:
    bench.edit("[router]", '[router]\nenv = { EXTRA_TOKEN = "s3cret", EXTRA = "1" }')
    code, said = cli("deploy", "--plan", "--detailed-exitcode")
    assert code == 8
    lines = said.splitlines()
    assert lines[0] == "local" and lines[-1] == "12 changes"
    assert "  + install the unit decode-0" in lines and "  + start router" in lines
    assert "      EXTRA: (unset) -> 1" in lines
    assert "      EXTRA_TOKEN: (unset) -> ***" in lines and "s3cret" not in said
    assert not bench.root().exists()
    assert cli("deploy", "--plan")[0] == 0


def test_json_is_one_document_that_says_what_is_true(bench: Bench, cli: Any) -> None:
    code, said = cli("deploy", "--json")
    first = json.loads(said)
    assert (code, first["applied"], first["schema"]) == (0, True, 1)
    assert [(g["group"], g["state"]) for g in first["groups"]] == [
        ("cell a", "done"),
        ("router", "done"),
        ("left over", "unchanged"),
    ]
    assert first["hosts"][0]["release"] == bench.serving()["router"]
    assert json.loads(cli("deploy", "--json")[1])["changes"] == 0
    bench.edit("[router]", '[router]\nenv = { FAKE_BEHAVE = "empty" }')
    code, said = cli("deploy", "--json", "--yes")
    failed = json.loads(said)
    assert code == 3 and failed["error"]["exit"] == 3
    assert failed["error"]["code"] == "canary_failed"
    states = {g["group"]: g["state"] for g in failed["groups"]}
    assert states == {"cell a": "unchanged", "router": "put back", "left over": "unchanged"}
    (id,) = {g["serves"] for g in failed["groups"] if g["serves"]}
    known = json.loads(cli("rollback", "--list", "--json")[1])["deployments"]
    assert [d["id"] for d in known] == [id]


def test_a_restart_is_asked_for_and_nobody_is_there_to_answer(bench: Bench, cli: Any) -> None:
    cli("deploy")
    lives = bench.lives()
    bench.edit("[router]", '[router]\nenv = { EXTRA = "1" }')
    code, _ = cli("deploy")
    assert code == 2 and bench.lives() == lives
    code, said = cli("deploy", "--yes")
    assert code == 0 and "EXTRA: (unset) -> 1" not in said.splitlines()[0]
    assert bench.lives()["router"] != lives["router"]
    code, said = cli("rollback", "--plan", "--detailed-exitcode")
    assert code == 8 and "      EXTRA: 1 -> (unset)" in said.splitlines()
    assert cli("rollback", "--yes")[0] == 0
    code, said = cli("rollback", "--list")
    assert code == 0 and "rollback to" in said and said.splitlines()[1].startswith("serves")
    assert cli("rollback", "nope")[0] == 2


def test_a_host_that_takes_no_part_makes_the_plan_partial(
    two: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    two.edit(
        '[hosts.h2]\ntransport = "local"\npython = "', '[hosts.h2]\ntransport = "local"\npython = "/gone'
    )
    assert main(["--fleet", str(two.path), "deploy", "--plan", "--detailed-exitcode"]) == 4
    assert capsys.readouterr().out.startswith("h2: takes no part: ")
    assert main(["--fleet", str(two.path), "deploy"]) == 4
    shown = capsys.readouterr()
    rows = [line.split("  ") for line in shown.out.splitlines()]
    row = [word.strip() for word in next(r for r in rows if r[0] == "cell b") if word.strip()]
    assert row[:3] == ["cell b", "h2", "not deployed"]
    assert "Not deployed to cell b" in shown.err
