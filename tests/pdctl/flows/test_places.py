"""What a deploy put somewhere is not forgotten when the fleet file no longer leads there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pdctl.__main__ import main
from pdctl.fleet.load import load_fleet
from pdctl.flows.deploy import places
from pdctl.remote.journal import Journal
from pdctl.remote.journal_read import last_note, prune_runs
from tests.pdctl.flows.conftest import Bench

REMOTE = """schema = 1
[fleet]
name = "night"
[model]
path = "/models/m"
name = "m"
[hosts.h1]
transport = "ssh"
address = "10.0.0.1"
runtime = "existing"
python = "/usr/bin/python3"
[cells.a.engines.p]
role = "prefill"
host = "h1"
port = 8101
bootstrap_port = 8102
[cells.a.engines.d]
role = "decode"
host = "h1"
port = 8103
[router]
host = "h1"
port = 8100
"""


def test_a_host_that_left_the_file_is_told_until_its_units_are_gone(
    two: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    def cli(*words: str) -> str:
        assert main(["--fleet", str(two.path), *words]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    assert "not in the fleet file" not in cli("deploy", "--yes")
    whole = two.path.read_text()
    host = re.search(r"\[hosts\.h2\][^[]*", whole)[0]  # type: ignore[index]
    emptied = re.sub(r"\[cells\.b\.[^[]*", "", whole)
    two.path.write_text(emptied.replace(host, ""))
    told = "note: h2 is not in the fleet file any more; what pdctl deployed there"
    assert told in cli("deploy", "--plan")
    assert told in cli("deploy", "--yes")
    two.path.write_text(emptied)
    assert "remove" in cli("deploy", "--yes")
    assert all(pid is None for name, pid in two.lives().items() if name.endswith("-b"))
    two.path.write_text(emptied.replace(host, ""))
    assert "not in the fleet file" not in cli("deploy", "--plan")
    two.path.write_text(whole)


def test_a_host_whose_root_or_scope_changed_takes_no_part(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/default.toml").write_text('schema = 1\nname = "default"\n')
    path.write_text(REMOTE)
    fleet = load_fleet(path)
    assert places.moved(fleet) == {}
    with Journal(fleet.paths.journal, "deploy") as journal:
        places.ended(fleet, journal)
    assert places.moved(fleet) == {} and places.forgotten(fleet) == []
    path.write_text(
        REMOTE.replace('"/usr/bin/python3"', '"/usr/bin/python3"\nscope = "user"\nroot = "/home/a/b"')
    )
    said = places.moved(load_fleet(path))["h1"]
    assert said.message.startswith(
        "hosts.h1 was deployed to with root = /opt/pdctl/night, scope = system; its units there would go on"
    )
    assert said.hint.startswith("Put root and scope back")


def test_pruning_the_journal_keeps_the_newest_note(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    for number in (1, 2):
        with Journal(journal, "deploy") as run:
            run.note("places", hosts={"h1": {"root": str(number)}})
            run.note("stopped", units=[])
    assert prune_runs(journal, 0.0) == 2
    assert last_note(journal, "places") == {"hosts": {"h1": {"root": "2"}}}
    assert last_note(journal, "none") == {}
