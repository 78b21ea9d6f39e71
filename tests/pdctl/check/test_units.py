"""Preflight of units on their host: ports, GPUs, NUMA, UCX."""

from __future__ import annotations

from typing import Any

import pytest

from pdctl.facts.gpu import GpuHolder
from pdctl.facts.missing import Missing
from pdctl.facts.ports import TAKEN, Holder, PortState
from pdctl.flows.check import ucx as check_ucx
from pdctl.flows.check.report import Level
from pdctl.flows.check.units import lines
from tests.pdctl.check.conftest import OFF

ADDRESS = "10.0.0.2"


def held(made: Any, *holders: Holder, error: str = TAKEN, **over: Any) -> Any:
    return made.state(ports=(PortState(ADDRESS, 8001, error, holders),), **over)


def test_a_unit_that_holds_its_own_port_is_fine_its_children_too(made: Any, only: Any) -> None:
    facts = {"decode-0": made.running(100)}
    for holder in (Holder(ADDRESS, "pd", 100), Holder(ADDRESS, "pd", 4711, (104, 100))):
        line = only(lines(held(made, holder, facts=facts)), "ports")
        assert line.level is Level.OK and "decode-0 itself" in line.found


def test_a_life_that_began_between_two_looks_is_known_by_its_keeper(made: Any, only: Any) -> None:
    away = made.replace(made.running().unit, state="backoff", pid=None, keeper=90)
    facts = {"decode-0": made.replace(made.running(), unit=away, process=Missing("no process runs"))}
    born = Holder(ADDRESS, "pd", 4711, (90, 1))
    assert only(lines(held(made, born, facts=facts)), "ports").level is Level.OK
    leaving = held(made, born, facts=facts, ending=frozenset({"decode-0"}))
    assert "4711, which ends first" in only(lines(leaving), "ports").found
    other = Holder(ADDRESS, "pd", 4712, (91, 1))
    assert only(lines(held(made, other, facts=facts)), "ports").level is Level.FAIL


def test_a_stranger_is_told_with_what_would_stop_it(made: Any, only: Any) -> None:
    line = only(lines(held(made, Holder("0.0.0.0", "www", 7, (1,), "nginx", "nginx.service"))), "ports")
    assert line.level is Level.FAIL and "pid 7 of www (nginx, nginx.service)" in line.found
    assert line.fix.startswith("systemctl stop nginx.service on h2")
    line = only(lines(held(made, Holder("0.0.0.0", "ann", 7))), "ports")
    assert line.fix.startswith("kill 7 on h2")
    line = only(lines(held(made, Holder("0.0.0.0", "root", None))), "ports")
    assert "cannot be seen without root" in line.found


def test_another_unit_of_the_fleet_is_called_by_its_name(made: Any) -> None:
    units = (made.engine(), made.engine("decode-1", port=8002))
    ports = (
        PortState(ADDRESS, 8001, TAKEN, (Holder(ADDRESS, "pd", 200),)),
        PortState(ADDRESS, 8002, "", ()),
    )
    state = made.state(
        *units, ports=ports, facts={"decode-0": made.running(100), "decode-1": made.running(200)}
    )
    first = next(line for line in lines(state) if line.check == "ports")
    assert "which is decode-1 of this fleet" in first.found and first.level is Level.FAIL


def test_an_engine_that_listens_where_no_peer_comes_fails(made: Any, only: Any) -> None:
    """The port is free at the fleet's address, and still the engine runs: at 127.0.0.1."""
    state = held(made, Holder("127.0.0.1", "pd", 100), error="", facts={"decode-0": made.running(100)})
    line = only(lines(state), "ports")
    assert line.level is Level.FAIL and "8001 is open at 127.0.0.1 only" in line.found


def test_what_units_that_a_deploy_stops_first_hold_is_as_good_as_free(made: Any, only: Any) -> None:
    """A unit of another name too, and one that listens where no peer comes; a stranger beside it is none."""
    facts = {"decode-0": OFF, "old": made.running(300)}
    gone = {"facts": facts, "ending": frozenset({"decode-0", "old"})}
    line = only(lines(held(made, Holder(ADDRESS, "pd", 301, (300,)), **gone)), "ports")
    assert line.level is Level.OK and "8001 held by pid 301, which ends first" in line.found
    line = only(lines(held(made, Holder("127.0.0.1", "pd", 300), error="", **gone)), "ports")
    assert line.level is Level.OK
    line = only(lines(held(made, Holder(ADDRESS, "pd", 300), Holder(ADDRESS, "ann", 7), **gone)), "ports")
    assert line.level is Level.FAIL and line.fix.startswith("kill")
    state = held(made, Holder(ADDRESS, "pd", 300), facts=facts)
    assert only(lines(state), "ports").level is Level.FAIL, "it is not stopped"


def test_an_address_of_another_host_is_one_line(made: Any, only: Any) -> None:
    found = list(lines(held(made, error="no interface of this host has that address")))
    assert only(found, "address").level is Level.FAIL
    assert not [line for line in found if line.check == "ports"]


def gpu(made: Any, *holders: GpuHolder, **table: Any) -> Any:
    engine = made.engine(device="cuda", **table)
    return made.state(engine, gpus=made.two_gpus(*holders), numa=made.two_nodes())


def test_gpus_that_are_there_and_free(made: Any, only: Any) -> None:
    line = only(lines(gpu(made, gpus=[1], numa=1)), "gpu")
    assert line.level is Level.OK and line.found == "NVIDIA H200, driver 550.90.07"
    assert not [line for line in lines(made.state()) if line.check == "gpu"], "cpu engines need none"


def test_a_foreign_process_on_a_gpu_is_named_and_ones_own_is_not(made: Any, only: Any) -> None:
    foreign = GpuHolder(4711, "GPU-1", 70000, (1,), "python train.py")
    line = only(lines(gpu(made, foreign, gpus=[1], numa=1)), "gpu")
    assert line.level is Level.FAIL and "GPU 1: pid 4711 (python train.py) with 70000 MiB" in line.found
    assert only(lines(gpu(made, foreign, gpus=[0], numa=0)), "gpu").level is Level.OK, "another GPU"
    state = made.replace(gpu(made, foreign, gpus=[1], numa=1), facts={"decode-0": made.running(4711)})
    assert only(lines(state), "gpu").level is Level.OK


def test_an_engine_of_another_kind_may_use_any_gpu_that_is_there(made: Any, only: Any) -> None:
    foreign = GpuHolder(4711, "GPU-1", 70000, (1,), "python train.py")
    engine = made.engine(kind="sglang", command=["python", "-m", "sglang.launch_server"])
    assert only(lines(made.state(engine, gpus=made.two_gpus(foreign))), "gpu").level is Level.FAIL
    assert not [line for line in lines(made.state(engine)) if line.check == "gpu"], "nor must there be one"


def test_a_gpu_that_is_not_there_and_a_driver_that_is_not(made: Any, only: Any) -> None:
    assert "h2 has GPU 0, 1" in only(lines(gpu(made, tp=4)), "gpu").found
    state = made.replace(gpu(made), gpus=Missing("nvidia-smi has failed"))
    assert only(lines(state), "gpu").level is Level.FAIL


def test_two_engines_on_one_gpu_are_caught_before_they_start(made: Any) -> None:
    engines = [made.engine(f"decode-{n}", device="cuda", port=8001 + n, gpus=[0]) for n in range(2)]
    found = [line for line in lines(made.state(*engines, gpus=made.two_gpus())) if line.level is Level.FAIL]
    assert [(line.subject, line.found) for line in found] == [("decode-1", "GPU 0 is decode-0's too")]


def test_numa_binding(made: Any, only: Any) -> None:
    def line(**table: Any) -> Any:
        return only(lines(gpu(made, **table)), "numa")

    assert line(gpus=[0]).level is Level.WARN, "two nodes and bound to none"
    assert line(gpus=[0], numa=0).level is Level.OK
    assert line(gpus=[1], numa=0).found == "GPU 1 is near node 1"
    assert line(numa=2).level is Level.FAIL
    one = made.state(made.engine(numa=0))
    assert only(lines(one), "numa").level is Level.OK
    fenced = made.replace(gpu(made, numa=1), numa=made.replace(made.two_nodes(), cpus=frozenset(range(8))))
    assert only(lines(fenced), "numa").level is Level.FAIL


def test_a_running_engine_that_is_not_bound_is_seen(made: Any, only: Any) -> None:
    state = gpu(made, gpus=[1], numa=1)
    loose = made.replace(state, facts={"decode-0": made.running(cpus="0-15", mems="0-1")})
    assert only(lines(loose), "numa").found == "it runs on CPUs 0-15, memory of node 0-1"
    bound = made.replace(state, facts={"decode-0": made.running(cpus="8-15", mems="1")})
    assert only(lines(bound), "numa").level is Level.OK


@pytest.mark.parametrize(
    ("env", "level"),
    [
        ({}, Level.OK),
        ({"UCX_NET_DEVICES": "eth0"}, Level.OK),
        ({"UCX_NET_DEVICES": "mlx5_0:1,eth0"}, Level.OK),
        ({"UCX_NET_DEVICES": "mlx5_0"}, Level.OK),
        ({"UCX_NET_DEVICES": "eth7"}, Level.FAIL),
        ({"UCX_NET_DEVICES": "lo"}, Level.FAIL),
        ({"UCX_NET_DEVICES": "eth1"}, Level.FAIL),  # down
        ({"UCX_TLS": "tcp,self"}, Level.OK),
        ({"UCX_TLS": "rc,cuda_copy"}, Level.OK),
        ({"UCX_TLS": "shm,self"}, Level.FAIL),
        ({"UCX_TLS": "^shm"}, Level.OK),
        ({"UCX_TLS": "^tcp,ib"}, Level.FAIL),
    ],
)
def test_what_ucx_is_told(made: Any, env: dict[str, str], level: Level) -> None:
    down = made.replace(made.eth("10.0.1.2", up=False), name="eth1")
    base = made.state(env={"decode-0": env}, rdma=(made.infiniband(),))
    state = made.replace(base, interfaces=(*base.interfaces, down))
    assert max(line.level for line in check_ucx.lines(state, {"decode-0"})) is level


def test_on_one_machine_lo_is_as_good_as_any(made: Any) -> None:
    state = made.state(env={"decode-0": {"UCX_NET_DEVICES": "lo", "UCX_TLS": "shm"}})
    assert [line.level for line in check_ucx.lines(state, set())] == [Level.OK]


def test_rdma_alone_needs_an_active_device(made: Any) -> None:
    state = made.state(env={"decode-0": {"UCX_TLS": "rc"}}, rdma=(made.infiniband("DOWN"),))
    assert max(line.level for line in check_ucx.lines(state, {"decode-0"})) is Level.FAIL
