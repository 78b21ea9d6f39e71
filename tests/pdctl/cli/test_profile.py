"""`pdctl profile check` and what `profile set` leaves behind, as an operator sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdctl.__main__ import main
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.fleet.profile import load_profile
from pdctl.flows.deployed import last_deploy
from pdctl.remote.journal import Journal
from pdctl.remote.operator import me
from tests.pdctl.models import model_folder


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--local", "--model", str(model_folder(tmp_path / "model"))]) == Exit.OK
    return tmp_path


def test_a_check_says_where_what_and_what_to_do(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["profile", "check"]) == Exit.OK
    assert capsys.readouterr().out == "demo: nothing is wrong with its values.\n"
    path = fleet / "profiles" / "default.toml"
    path.write_text(
        path.read_text() + '\n[values.UCX_TSL]\nvalue = "tcp"\nside = "both"\nreason = "no rdma"\n'
    )
    line = path.read_text().splitlines().index("[values.UCX_TSL]") + 1
    assert main(["profile", "check", "default"]) == Exit.FINDINGS
    assert capsys.readouterr().out == (
        f"warning {path}:{line}: UCX_TSL is no variable of UCX. [prefill-0, decode-0]\n"
        "        Did you mean UCX_TLS?\n"
        "default: 1 warning.\n"
    )
    assert main(["profile", "check", "--json"]) == Exit.FINDINGS
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert found["place"] == f"{path}:{line}" and found["units"] == ["prefill-0", "decode-0"]
    assert main(["profile", "check", "defualt"]) == Exit.USAGE


def test_what_is_changed_after_a_deploy_is_not_what_runs(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The journal says when the deploy was; the value says who changed it and when."""
    set_rank = ["profile", "set", "default", "PD_RANK_TIMEOUT=25", "--reason", "a slow disk"]
    assert last_deploy(load_fleet(fleet)) == ""
    with Journal(fleet / ".pdctl" / "journal.db", "deploy"):
        pass
    assert main(["profile", "check"]) == Exit.OK
    deployed = last_deploy(load_fleet(fleet))
    while main([*set_rank]) == Exit.OK:
        value = load_profile(fleet / "profiles", "default").values["PD_RANK_TIMEOUT"]
        if value.date > deployed:  # they are told apart by the second
            break
    assert value.author == me().name
    capsys.readouterr()
    assert main(["profile", "check"]) == Exit.FINDINGS
    said = capsys.readouterr().out
    assert (
        f"PD_RANK_TIMEOUT was changed at {value.date}, after the last deploy, and is read at start." in said
    )
    assert main(["profile", "show"]) == Exit.OK
    assert f"{value.date} by {me().name}" in capsys.readouterr().out


def test_an_argument_of_another_engine_cannot_be_set_live(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["profile", "set", "default", "SGLANG_HEALTH_CHECK_TIMEOUT=9", "--reason", "busy", "--live"]
    assert main(argv) == Exit.USAGE
    assert "is read when its module is imported" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["PD_RANK_TIMEOUT", "25"], ["PD_RANK_TIMEOUT", "=", "25"], ["PD_RANK_TIMEOUT"]]
)
def test_an_assignment_is_one_word(fleet: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["profile", "set", "default", *words, "--reason", "a slow disk"]) == Exit.USAGE
    assert f"{' '.join(words)} is not one word NAME=VALUE." in capsys.readouterr().err
