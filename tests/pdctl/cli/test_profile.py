"""`pdctl profile check` and what `profile set` leaves behind, as an operator sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdctl.__main__ import main
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.fleet.offered import offered
from pdctl.fleet.profile import engine_env, load_profile, profile_names
from pdctl.fleet.shipped import shipped_text
from pdctl.flows.deployed import last_deploy
from pdctl.remote.journal import Journal
from pdctl.remote.operator import me
from tests.pdctl.models import model_folder


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--local", "--model", str(model_folder(tmp_path / "model"))]) == Exit.OK
    return tmp_path


def test_a_check_says_where_what_and_what_to_do(
    fleet: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
        f"warning profiles/default.toml:{line}: UCX_TSL is no variable of UCX 1.23.0. [prefill-0, decode-0]\n"
        "        Did you mean UCX_TLS?\n"
        "default: 1 warning.\n"
    )
    assert main(["profile", "check", "--json"]) == Exit.FINDINGS
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert found["place"] == f"{path}:{line}" and found["units"] == ["prefill-0", "decode-0"]
    assert main(["profile", "check", "defualt"]) == Exit.USAGE
    # A path is one from where the operator stands.
    for folder, shown in ((fleet.parent, f"{fleet.name}/profiles/default.toml"), (fleet / "model", path)):
        monkeypatch.chdir(folder)
        capsys.readouterr()
        assert main(["--fleet", str(fleet), "profile", "check"]) == Exit.FINDINGS
        assert capsys.readouterr().out.startswith(f"warning {shown}:{line}: UCX_TSL")


def test_a_missing_secret_is_one_finding_among_the_others_and_a_deploy_is_refused(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a profile; of a unit's own file that the fleet file names in test_check.py."""
    path = fleet / "profiles" / "default.toml"
    rows = """
[values.HF_TOKEN]
secret = "hf.env"
side = "both"
reason = "weights are private"

[values.UCX_TSL]
value = "tcp"
side = "both"
reason = "no rdma"
"""
    path.write_text(path.read_text() + rows)
    line = path.read_text().splitlines().index("[values.HF_TOKEN]") + 1
    capsys.readouterr()
    assert main(["profile", "check"]) == Exit.FINDINGS
    assert capsys.readouterr().out == (
        f"error   profiles/default.toml:{line}: HF_TOKEN cannot be had: the secrets hf.env cannot be read: "
        "No such file or directory. [prefill-0, decode-0]\n"
        "        A deploy is refused until then: a file of lines NAME=VALUE, mode 0600, "
        "beside the fleet file.\n"
        f"warning profiles/default.toml:{line + 5}: UCX_TSL is no variable of UCX 1.23.0. "
        "[prefill-0, decode-0]\n"
        "        Did you mean UCX_TLS?\n"
        "demo: 1 error, 1 warning.\n"
    )
    for words in (["deploy", "--plan"], ["deploy", "--yes"]):
        assert main(words) == Exit.USAGE
        assert f"profiles/default.toml:{line}: the secrets hf.env cannot be read" in capsys.readouterr().err


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


def test_a_value_edited_by_hand_is_told_from_what_the_last_deploy_gave(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any date, and of the units that were deployed with another."""
    loaded = load_fleet(fleet)
    decode = loaded.engine("decode-0")
    env = {n: v.value for n, v in engine_env(loaded, decode).items()} | decode.arguments
    with Journal(fleet / ".pdctl" / "journal.db", "deploy") as journal:
        old = {**env, "PD_RANK_TIMEOUT": "21"}
        journal.note("deployment", id="1", values=[{"units": ["prefill-0", "decode-0"], "values": old}])
        journal.note("deployment", id="2", values=[{"units": ["decode-0"], "values": env}])
    capsys.readouterr()
    assert main(["profile", "check"]) == Exit.FINDINGS
    path = fleet / "profiles" / "default.toml"
    line = path.read_text().splitlines().index("[values.PD_RANK_TIMEOUT]") + 1
    assert capsys.readouterr().out == (
        f"warning profiles/default.toml:{line}: PD_RANK_TIMEOUT is {env['PD_RANK_TIMEOUT']}, was 21 in the "
        "last deploy, and is read at start. [prefill-0]\n"
        "        What runs has the old value, and --live cannot reach it: `pdctl deploy`.\n"
        "demo: 1 warning.\n"
    )


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


def test_a_value_that_hurts_is_said_when_it_is_set(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is written all the same, and what it cannot reach is not promised; the journal has who and why."""

    def said(assignment: str, *more: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["profile", "set", "mine", assignment, "--reason", "at noon", *more])
        told = capsys.readouterr()
        return code, told.out + told.err

    (fleet / "profiles" / "mine.toml").write_text('schema = 1\nname = "mine"\nextends = "dsv4-sm120"\n')
    (fleet / "profiles" / "dsv4-sm120.toml").write_text(shipped_text("profiles", "dsv4-sm120.toml"))
    code, text = said("SGLANG_SM120_MMA_TARGET_CTAS=512")
    assert code == Exit.OK and "made decode attention unstable at long context" in text
    assert "until `pdctl deploy`: SGLANG_SM120_MMA_TARGET_CTAS is read when graphs are captured." in text
    assert "--live" not in text
    code, text = said("SGLANG_DISAGGREGATION_WAITING_TIMEOUT=soon")
    assert code == Exit.OK and "must be a number of seconds" in text
    assert "error" not in said("SGLANG_DISAGGREGATION_WAITING_TIMEOUT=50")[1]
    code, text = said("UCX_NET_DEVICE=eth0")
    assert code == Exit.USAGE and "Did you mean UCX_NET_DEVICES? Else pass --side" in text
    assert main(["history", "--json"]) == Exit.OK
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert runs[0]["command"] == "profile set mine SGLANG_DISAGGREGATION_WAITING_TIMEOUT"
    assert main(["history", runs[0]["id"]]) == Exit.OK
    (step,) = (row for row in capsys.readouterr().out.splitlines() if " -> " in row)
    assert "SGLANG_DISAGGREGATION_WAITING_TIMEOUT: soon -> 50" in step


def test_a_new_fleet_has_the_profiles_that_its_engine_reads(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """dsv4-sm120 is SGLang's, and comes with a fleet of SGLang that is adopted."""
    assert profile_names(fleet / "profiles") == ["default", "drill", "production"]
    assert list(offered("sglang")) == ["dsv4-sm120.toml"] and not offered("vllm")
    capsys.readouterr()
    argv = ["--fleet", str(fleet / "other"), "init", "--local", "--profile", "dsv4-sm120"]
    assert main([*argv, "--model", str(fleet / "model")]) == Exit.USAGE
    assert "No profile dsv4-sm120 of the bundled engine is shipped." in capsys.readouterr().err


def test_a_profile_that_cannot_be_read_hides_no_other(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (fleet / "profiles" / "loop.toml").write_text('schema = 1\nname = "loop"\nextends = "loop"\n')
    capsys.readouterr()
    assert main(["profile", "list"]) == Exit.USAGE
    said = capsys.readouterr().out
    assert "production" in said and "loop is left out: Profile loop extends itself" in said


def test_the_drills_are_listed_where_no_engine_answers(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["drill", "list"]) == Exit.OK
    said = capsys.readouterr().out
    assert "one-sided-restart" in said and "decode-0 cannot be asked: " in said
    assert main(["profile", "bisect", "default", "nosuch", "--plan"]) == Exit.USAGE
    assert "There is no profile nosuch" in capsys.readouterr().err
