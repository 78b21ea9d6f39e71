"""What a deploy gave its units, as `profile check` compares with it: values, and no secret."""

from __future__ import annotations

from pdctl.fleet.check.run import check_profiles
from pdctl.flows.deployed import last_deploy, last_values
from tests.pdctl.flows.conftest import Bench

ROWS = """
[values.HF_TOKEN]
secret = "hf.env"
side = "both"
reason = "weights are private"
"""


def test_a_deploy_notes_what_it_gave_and_an_edit_behind_it_is_found(bench: Bench) -> None:
    (bench.folder / "hf.env").write_text("HF_TOKEN=not-for-the-journal\n")
    (bench.folder / "hf.env").chmod(0o600)
    path = bench.fleet().paths.profiles / "default.toml"
    path.write_text(path.read_text() + ROWS)
    bench.deploy()
    fleet = bench.fleet()
    given = last_values(fleet)
    assert set(given) == {"prefill-0", "decode-0", "router"}
    assert "HF_TOKEN" not in given["decode-0"]
    assert b"not-for-the-journal" not in fleet.paths.journal.read_bytes()
    assert check_profiles(fleet, None, last_deploy(fleet), given) == []
    old = given["decode-0"]["PD_RANK_TIMEOUT"]
    head = "[values.PD_RANK_TIMEOUT]\nvalue = "
    bench.edit(f'{head}"{old}"', f'{head}"{old}.5"', "profiles/default.toml")
    (found,) = check_profiles(fleet, None, last_deploy(fleet), last_values(fleet))
    assert found.says == f"is {old}.5, was {old} in the last deploy, and is read at start"
    assert found.units == ("prefill-0", "decode-0")
    rows = path.read_text()
    path.write_text(rows.replace(rows[rows.index("[values.PD_RANK_TIMEOUT]") :].partition("\n\n")[0], ""))
    gone = check_profiles(fleet, None, last_deploy(fleet), last_values(fleet))
    says = f"is set no more, was {old} in the last deploy, and is read at start"
    assert {(f.name, f.says, *f.units) for f in gone} == {
        ("PD_RANK_TIMEOUT", says, "prefill-0"),
        ("PD_RANK_TIMEOUT", says, "decode-0"),
    }


def test_arguments_edited_behind_a_deploy_are_found_too(bench: Bench) -> None:
    bench.deploy()
    given = last_values(bench.fleet())
    assert given["decode-0"]["--tp"] == "1" and "--pages" not in given["decode-0"]
    table = "[cells.a.engines.decode-0]\n"
    bench.edit(table, f"{table}pages = 96\n")
    path = bench.fleet().path
    path.write_text(path.read_text().replace("tp = 1", "tp = 2", 1))
    fleet = bench.fleet()
    found = check_profiles(fleet, None, last_deploy(fleet), last_values(fleet))
    assert {(f.name, f.says, *f.units) for f in found} >= {
        ("--tp", "is 2, was 1 in the last deploy, and is read at start", "prefill-0"),
        ("--pages", "is 96, was not set in the last deploy, and is read at start", "decode-0"),
    }
    line = fleet.path.read_text().splitlines().index("pages = 96") + 1
    assert next(f for f in found if f.name == "--pages").place == f"{fleet.path}:{line}"
