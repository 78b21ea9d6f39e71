"""More cells ill at once than bundles are kept in memory: each gets its evidence and its act."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pdctl.bundle.documents import Documents
from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.supervise import daemon as module
from pdctl.flows.supervise import judging
from pdctl.flows.supervise.act import Outcome
from pdctl.flows.supervise.switch import Standby
from tests.pdctl.supervisor.bed import Bed, Virtual, finding, policy
from tests.pdctl.supervisor.sim import fleet_file


def test_every_ill_cell_is_acted_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fleet").mkdir()
    fleet = load_fleet(fleet_file(tmp_path / "fleet", 12 * 8, 23000))
    bed, acts = Bed(tmp_path, cells=()), list[str]()
    bed.names = {cell: tuple(e.name for e in fleet.cells[cell].engines) for cell in fleet.cells}
    wedges = [finding("PD501", cell=cell) for cell in fleet.cells]

    def act(*args: object) -> Outcome:
        acts.append(args[1].target)  # type: ignore[attr-defined]
        return Outcome("done", "so it was")

    # A bundle of its own for every look, as each is a new one.
    documents = lambda ctx: (None, Documents("t", {"manifest.json": "{}"}))  # noqa: E731
    monkeypatch.setattr(judging, "diagnose_kept", documents)
    monkeypatch.setattr(judging, "seen", lambda report, owners: wedges)
    monkeypatch.setattr(module, "act", act)
    monkeypatch.setattr(module.Daemon, "_ask_switches", lambda self: None)
    with Context(fleet, say=lambda said: None) as ctx:
        bed.clock = Virtual()
        look = lambda: bed.seen(*fleet.cells)  # noqa: E731
        daemon = module.Daemon(ctx, policy(), Standby(ctx, print), look, lambda notice: None, bed.clock)
        end = time.monotonic() + 60.0
        while set(acts) != set(fleet.cells) and time.monotonic() < end:
            bed.clock.pass_(5.0)
            daemon.tick()
            time.sleep(0.002)
        daemon.close()
    assert set(acts) == set(fleet.cells)
