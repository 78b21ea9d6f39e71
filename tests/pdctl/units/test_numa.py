"""The keeper binds a unit to a NUMA node; systemd's way is in the unit files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.units import numa
from tests.pdctl.units.conftest import Bench

TELLS = "print('cpus', sorted(os.sched_getaffinity(0)), flush=True); tell('READY=1'); time.sleep(600)"


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with CPUs on node 0 and node 1, and memory alone on node 2."""
    for node, cpus in ((0, "0-1,4"), (1, "2-3"), (2, "")):
        folder = tmp_path / f"nodes/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    monkeypatch.setattr(numa, "NODES", tmp_path / "nodes")
    return tmp_path / "nodes"


def test_numactl_binds_cpus_and_memory(nodes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "numactl"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    bound = numa.bind(("python", "-m", "engine"), 1)
    assert bound.argv == (str(tool), "--cpunodebind=1", "--membind=1", "--", "python", "-m", "engine")
    assert (bound.before, bound.note) == (None, "")
    assert numa.bind(("python",), None) == numa.Binding(("python",))


def test_without_numactl_the_cpus_are_bound_and_it_is_said(
    nodes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    bound = numa.bind(("python",), 1)
    assert bound.argv == ("python",) and bound.before is not None
    assert "not to its memory" in bound.note
    assert numa.cpus_of(0) == {0, 1, 4}


def test_a_node_that_is_not_there_is_named_with_those_that_are(nodes: Path) -> None:
    with pytest.raises(numa.NoNode, match=r"no NUMA node 7 here \(there is: 0, 1, 2\)"):
        numa.bind(("python",), 7)
    with pytest.raises(numa.NoNode, match="NUMA node 2 has no CPUs"):
        numa.bind(("python",), 2)


def test_a_kept_unit_runs_on_its_node(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 0 is on every machine; the keeper finds no numactl on this PATH."""
    bench.install("near", TELLS, numa=0)
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        bench.units.start("near")
    bench.until("near", lambda s: s.state == "active")
    assert f"cpus {sorted(numa.cpus_of(0))}" in bench.log("near")
    assert "numactl is not installed" in bench.log("near")


def test_a_kept_unit_of_a_node_that_is_not_there_says_so(bench: Bench) -> None:
    bench.install("far", TELLS, numa=4000, burst=1)
    bench.units.start("far")
    status = bench.until("far", lambda s: s.state == "failed")
    assert "there is no NUMA node 4000 here" in status.reason
