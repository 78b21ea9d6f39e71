"""GPUs, NUMA nodes, RDMA devices: what the tools and the kernel print there, and what is made of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdctl.facts import gpu, machine, topology
from pdctl.facts.gpu import Gpus
from pdctl.facts.missing import Missing
from pdctl.facts.probes import gpu as probe
from pdctl.facts.topology import cpu_list

Tell = Callable[..., Any]
# nvidia-smi --query-gpu=index,uuid,name,driver_version,memory.total,memory.used,pci.bus_id
CARDS = """\
0, GPU-4d1b1f9e-57a1-0f8b-2f1e-5e0a6b3a7c11, NVIDIA H200, 550.127.05, 143771, 14, 00000000:19:00.0
1, GPU-9f02c7aa-7f52-4be7-8f0f-7f3bb8a3e2d4, NVIDIA H200, 550.127.05, 143771, 70211, 00000000:B3:00.0
"""
# nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory; the second is of another pid namespace, on MIG
APPS = """\
{pid}, GPU-9f02c7aa-7f52-4be7-8f0f-7f3bb8a3e2d4, 70200
4194301, GPU-9f02c7aa-7f52-4be7-8f0f-7f3bb8a3e2d4, [N/A]
"""
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put an nvidia-smi that runs this shell text first in PATH."""

    def put(script: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return put


def answers(cards: str, apps: str) -> str:
    return f"case $1 in --query-gpu=*) printf '{cards}' ;; *) printf '{apps}' ;; esac".replace("\n", "\\n")


def test_cards_driver_and_holders(smi: Callable[[str], None], tell: Tell) -> None:
    smi(answers(CARDS, APPS.format(pid=os.getpid())))
    found = gpu.parse(tell("gpu"))
    assert isinstance(found, Gpus)
    assert found.driver == "550.127.05" and [g.index for g in found.gpus] == [0, 1]
    assert found.gpus[1].used_mib == 70211 and found.gpus[0].name == "NVIDIA H200"
    assert found.holders_of(0) == ()
    ours, theirs = found.holders_of(1)
    assert ours.of([os.getpid()]) and ours.memory_mib == 70200 and ours.command
    assert not theirs.of([os.getpid()]) and "not visible here" in theirs.words


def test_nobody_on_any_gpu(smi: Callable[[str], None], tell: Tell) -> None:
    smi(answers(CARDS, ""))
    found = gpu.parse(tell("gpu"))
    assert isinstance(found, Gpus) and found.holders == ()


def test_a_driver_that_does_not_answer_says_why(
    smi: Callable[[str], None], tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(f'echo "{NO_DRIVER.strip()}"; exit 9')
    found = gpu.parse(tell("gpu"))
    assert isinstance(found, Missing) and found.reason == NO_DRIVER.strip()
    assert tell("footprint", pids=[os.getpid()])[str(os.getpid())]["gpus"] is None
    smi("exec sleep 60")
    monkeypatch.setattr(probe, "SMI_DEADLINE", 0.2)
    assert probe.probe_gpu() == {"missing": "nvidia-smi did not answer in 0.2 s"}


def test_no_nvidia_smi_at_all(tell: Tell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(gpu.parse(tell("gpu"))) == f"not known: {gpu.ABSENT}"


# A machine with two sockets, as probe_numa tells it.
TWO_SOCKETS = {
    "nodes": [
        {"id": 0, "cpus": "0-3,8-11", "memory": 270 << 30},
        {"id": 1, "cpus": "4-7,12-15", "memory": 270 << 30},
    ],
    "cpus": list(range(16)),
    "gpus": {"0000:19:00.0": 0, "0000:b3:00.0": 1},
}


def test_numa_nodes_and_the_cards_near_them() -> None:
    found = topology.numa(TWO_SOCKETS)
    assert isinstance(found, topology.Numa)
    second = found.node(1)
    assert second is not None and second.cpus == {4, 5, 6, 7, 12, 13, 14, 15}
    assert found.near("00000000:B3:00.0") == 1 and found.near("00000000:AA:00.0") is None
    assert cpu_list("") == frozenset() and cpu_list("3") == {3}


def test_rdma_ports_are_named_as_ucx_names_them() -> None:
    rows = [
        {
            "device": "mlx5_0:1",
            "state": "ACTIVE",
            "link": "InfiniBand",
            "rate": "400 Gb/sec (4X NDR)",
            "node": 0,
        },
        {
            "device": "mlx5_1:1",
            "state": "DOWN",
            "link": "Ethernet",
            "rate": "25 Gb/sec (1X EDR)",
            "node": None,
        },
    ]
    found = topology.rdma(rows)
    assert not isinstance(found, Missing)
    assert [(d.device, d.active) for d in found] == [("mlx5_0:1", True), ("mlx5_1:1", False)]


def test_this_machine_has_nodes_interfaces_and_limits(tell: Tell) -> None:
    numa, interfaces = topology.numa(tell("numa")), topology.interfaces(tell("interfaces"))
    assert isinstance(numa, topology.Numa) and numa.cpus == set(os.sched_getaffinity(0))
    assert not isinstance(interfaces, Missing)
    lo = topology.carrying(interfaces, ["127.0.0.1"])
    assert lo is not None and lo.name == "lo" and lo.mtu >= 1500
    assert topology.carrying(interfaces, ["198.51.100.1"]) is None
    assert not isinstance(machine.memlock(tell("memlock")), Missing)
    room = machine.room(tell("disk", path="/nowhere/at/all"))
    assert isinstance(room, machine.Room) and room.path == "/" and 0 < room.free <= room.total


def test_limits_of_a_unit_follow_from_what_init_may_give() -> None:
    login, init = [8 << 20, 8 << 20], [64 << 20, 64 << 20]
    fixed = machine.memlock({"login": login, "init": init, "init_raises": False})
    raised = machine.memlock({"login": [-1, -1], "init": init, "init_raises": True})
    assert fixed == machine.Memlock(8 << 20, 64 << 20) and raised == machine.Memlock(None, None)
    assert isinstance(machine.memlock({"login": [], "init": init, "init_raises": True}), Missing)


def test_sizes_are_said_as_operators_say_them() -> None:
    assert [machine.size(v) for v in (None, 1 << 30, 3 << 20, 2048)] == [
        "unlimited",
        "1.0 GiB",
        "3.0 MiB",
        "2 KiB",
    ]


def test_pythons_are_asked_and_what_is_none_says_so(tell: Tell, tmp_path: Path) -> None:
    import sys

    odd = tmp_path / "odd"
    odd.write_text("#!/bin/sh\necho no python\n")
    odd.chmod(0o755)
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho lib missing >&2; exit 3\n")
    broken.chmod(0o755)
    paths = [sys.executable, str(odd), str(broken), "/nowhere"]
    rows = tell("python", interpreters=paths, dists=["httpx", "no-such-thing"])
    real = machine.python(sys.executable, rows)
    assert isinstance(real, machine.Python) and real.version[:3] == sys.version_info[:3]
    assert real.dists["httpx"] and real.dists["no-such-thing"] is None
    reasons = [str(machine.python(path, rows)) for path in paths[1:]]
    assert (
        "answered 'no python" in reasons[0] and "lib missing" in reasons[1] and "No such file" in reasons[2]
    )
