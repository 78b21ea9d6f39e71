"""What the fleet declares is collected with the file and line that says so, and read back from a bundle."""

from __future__ import annotations

import json
from pathlib import Path

from pdctl import contracts
from pdctl.bundle.manifest import read_fleet
from pdctl.fleet.load import load_fleet
from pdctl.flows.collect.servers import page
from pdctl.flows.init import Wanted, init_fleet
from tests.pdctl.models import model_folder

TIMER = "PD_PREFILL_INFLIGHT_TIMEOUT"


def test_values_and_units_carry_their_lines(tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    path = tmp_path / "fleet.toml"
    init_fleet(path, Wanted("test", str(tmp_path / "model")))
    own = 'UCX_TLS = "tcp"'
    path.write_text(path.read_text() + '\n[cells.a.engines.decode-0.env]\nUCX_TLS = "tcp"\n')
    lines = path.read_text().splitlines()
    fleet = load_fleet(path)
    text = page(fleet).to_json()
    assert contracts.faults("bundle_fleet", json.loads(text)) == []
    members = {m.name: m.places for m in read_fleet(text).members}
    assert members["decode-0"]["UCX_TLS"] == f"fleet.toml:{lines.index(own) + 1}"
    assert members["prefill-0"][""] == f"fleet.toml:{lines.index('[cells.a.engines.prefill-0]') + 1}"
    file, _, line = members["prefill-0"][TIMER].rpartition(":")
    declared = (tmp_path / file).read_text().splitlines()[int(line) - 1]
    assert TIMER in declared
