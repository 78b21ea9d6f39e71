"""`pdctl incidents` and `pdctl pause`: what they print, as text and as a document, and how they exit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdctl import contracts
from pdctl.__main__ import main
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.flows.init import Wanted, init_fleet
from pdctl.supervisor.incidents import Incidents
from tests.pdctl.models import model_folder
from tests.pdctl.supervisor.bed import Bed, finding


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    model_folder(tmp_path / "model")
    init_fleet(tmp_path / "fleet.toml", Wanted("test", str(tmp_path / "model")))
    return tmp_path


@pytest.fixture
def bed(fleet: Path) -> Bed:
    """One incident that is over and one that is open."""
    made = Bed(fleet / ".pdctl")
    case, decision = made.until(finding("PD501"))
    made.act(case, decision)
    made.quiet(seconds=120)
    made.quiet(finding("PD684", cell="b"), seconds=90)
    made.ward.kept(made.ward.cases["b"], "/evidence.tar.gz")
    return made


def asked(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main([*argv])
    return code, capsys.readouterr().out


def test_a_fleet_that_was_never_supervised_has_none(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "incidents") == (Exit.OK, "No incident.\n")
    assert not load_fleet(fleet).paths.supervisor.exists(), "to look makes nothing"
    load_fleet(fleet).paths.supervisor.write_bytes(b"")
    assert asked(capsys, "incidents")[0] == Exit.OK, "a file of the history alone"


def test_the_document_is_as_the_contract_says(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = asked(capsys, "incidents", "--json")
    document = json.loads(text)
    assert code == Exit.FINDINGS and contracts.faults("incidents", document) == []
    new, old = document["incidents"]
    assert (new["cell"], new["closed"], new["evidence"]) == ("b", None, "/evidence.tar.gz")
    assert [a["outcome"] for a in old["actions"]] == ["done"]
    code, text = asked(capsys, "incidents", str(old["id"]), "--json")
    assert code == Exit.OK and json.loads(text)["incidents"] == [old]


def test_text_has_what_was_done_and_where_the_evidence_lies(
    bed: Bed, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = asked(capsys, "incidents")
    assert "co-restart done" in text and "needs a person" in text
    _, text = asked(capsys, "incidents", "2")
    assert "pdctl explain PD684" in text and "pdctl diagnose --from /evidence.tar.gz" in text
    assert "allows no action for PD684" in text
    _, text = asked(capsys, "incidents", "--open")
    assert "PD684" in text and "PD501" not in text


def test_one_that_there_is_not(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["incidents", "99"]) == Exit.USAGE
    assert "There is no incident 99." in capsys.readouterr().err


def test_a_file_that_is_no_database_is_one_sentence(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_fleet(fleet).paths.supervisor.write_bytes(b"rubbish" * 500)
    assert main(["incidents"]) == Exit.USAGE
    assert "cannot be used" in capsys.readouterr().err


def test_pause_says_until_when_and_who(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pause", "--for", "soon"]) == Exit.USAGE
    code, text = asked(capsys, "pause", "--for", "2h", "--reason", "new disks", "--json")
    document = json.loads(text)
    assert (code, document["reason"], document["left_s"], document["acting"]) == (
        Exit.OK,
        "new disks",
        7200,
        "",
    )
    assert Incidents(load_fleet(fleet).paths.supervisor, read_only=True).recent() == []


def test_where_the_supervisor_runs_elsewhere_that_is_said(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fleet / "fleet.toml"
    assert main(["incidents"]) == Exit.OK and "runs on" not in capsys.readouterr().err
    text = path.read_text().replace("[fleet]\n", "[fleet]\nsupervise = true\n")
    text = text.replace('transport = "local"', 'transport = "ssh"').replace("127.0.0.1", "192.0.2.1")
    path.write_text(text)
    main(["incidents"])
    said = capsys.readouterr().err
    assert "The supervisor runs on local" in said and "/supervisor/fleet incidents` there" in said
