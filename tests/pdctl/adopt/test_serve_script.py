"""The serve script that people have: taken over word for word, with its environment file and its secrets."""

from __future__ import annotations

import pytest

from pdctl.exits import Exit
from pdctl.fleet.profile import profile_names

NCCL = """# fabric of this rack
export NCCL_SOCKET_IFNAME=bond0
export NCCL_IB_HCA=mlx5_0,mlx5_1
"""
PREFILL = """#!/usr/bin/env bash
set -euo pipefail

source {folder}/nccl.env
export SGLANG_DISAGGREGATION_NIXL_BACKEND=UCX
export SGLANG_SM120_MMA_FLASHMLA=1
export SGLANG_SM120_TRITON_INDEXER=1
export SGLANG_DSV4_BF16_INDEX_K=1
export SGLANG_DSV4_IDXK_CKSUM=0
export SGLANG_DSV4_REASONING_EFFORT=max
export SGLANG_DEFAULT_THINKING=true
export CUDA_VISIBLE_DEVICES=0,1,2,3

exec numactl --cpunodebind=0 --membind=0 /opt/sglang/bin/python -m sglang.launch_server \\
  --model-path /models/deepseek-v4 \\
  --trust-remote-code \\
  --served-model-name deepseek-v4 \\
  --disaggregation-mode prefill \\
  --disaggregation-transfer-backend nixl \\
  --disaggregation-bootstrap-port 8998 \\
  --tp 4 --host 0.0.0.0 --port 30000
"""
DECODE = (
    PREFILL.replace("prefill", "decode")
    .replace("30000", "30001")
    .replace("bind=0", "bind=1")
    .replace("0,1,2,3", "4,5,6,7")
    .replace("export SGLANG_DEFAULT_THINKING=true", "export SGLANG_DEFAULT_THINKING=false DECODES=1")
)
ROUTER = """#!/bin/bash
export RUST_LOG=info
exec /opt/sglang/bin/python -m sglang_router.launch_router --pd-disaggregation \\
  --prefill http://127.0.0.1:30000 8998 --decode http://127.0.0.1:30001 --host 0.0.0.0 --port 8100
"""
COMMAND = (
    "/opt/sglang/bin/python -m sglang.launch_server --model-path /models/deepseek-v4 --trust-remote-code "
    "--served-model-name deepseek-v4 --disaggregation-mode prefill --disaggregation-transfer-backend nixl "
    "--disaggregation-bootstrap-port 8998 --tp 4 --host 0.0.0.0 --port 30000"
)
ENV = {
    "NCCL_SOCKET_IFNAME": "bond0",
    "NCCL_IB_HCA": "mlx5_0,mlx5_1",
    "SGLANG_DISAGGREGATION_NIXL_BACKEND": "UCX",
    "SGLANG_SM120_MMA_FLASHMLA": "1",
    "SGLANG_SM120_TRITON_INDEXER": "1",
    "SGLANG_DSV4_BF16_INDEX_K": "1",
    "SGLANG_DSV4_IDXK_CKSUM": "0",
    "SGLANG_DSV4_REASONING_EFFORT": "max",
    "SGLANG_DEFAULT_THINKING": "true",
}


@pytest.fixture
def rack(bench):
    bench.write("nccl.env", NCCL)
    for name, text in (("prefill.sh", PREFILL), ("decode.sh", DECODE), ("router.sh", ROUTER)):
        bench.write(name, text.replace("{folder}", str(bench.folder)))
    return bench


def test_one_script_is_a_fleet_that_starts_exactly_that(rack) -> None:
    code, document = rack.adopt("prefill.sh")
    assert (code, document["exact"]) == (Exit.OK, True)
    fleet = rack.fleet()
    engine = fleet.engine("prefill-0")
    assert engine.spec.command == COMMAND.split()
    assert (engine.kind, engine.role, engine.port, engine.bootstrap_port) == (
        "sglang",
        "prefill",
        30000,
        8998,
    )
    assert (engine.spec.numa, engine.spec.gpus, engine.tp) == (0, [0, 1, 2, 3], 4)
    assert rack.env("prefill-0") == ENV
    assert (fleet.model.path, fleet.model.name) == ("/models/deepseek-v4", "deepseek-v4")
    assert fleet.units() == (engine,), "a router was made up"


def test_each_value_of_the_profile_says_where_it_came_from(rack) -> None:
    rack.adopt("prefill.sh")
    text = (rack.out / "profiles" / "adopted-prefill.toml").read_text()
    assert 'reason = "adopted from prefill.sh:9"' in text.partition("IDXK_CKSUM]")[2].partition("[")[0]
    assert f'reason = "adopted from {rack.folder}/nccl.env:2"' in text


def test_several_sources_are_one_fleet_and_each_side_keeps_its_values(rack) -> None:
    code, _ = rack.adopt("prefill.sh", "decode.sh", "router.sh", "--name", "rack")
    assert code == Exit.OK
    fleet = rack.fleet()
    assert [u.name for u in fleet.units()] == ["prefill-0", "decode-0", "router"]
    assert fleet.edges() == ((fleet.engine("prefill-0"), fleet.engine("decode-0")),)
    assert rack.env("prefill-0") == ENV
    assert rack.env("decode-0") == {**ENV, "SGLANG_DEFAULT_THINKING": "false", "DECODES": "1"}
    assert rack.env("router") == {"RUST_LOG": "info"}
    assert (fleet.router.kind, fleet.router.port) == ("sglang-router", 8100)
    profile = (rack.out / "profiles" / "adopted-rack.toml").read_text()
    assert profile_names(rack.out / "profiles") == ["adopted-rack", "dsv4-sm120"]
    assert 'side = "decode"' in profile.partition("[values.DECODES]")[2].partition("[")[0]
    assert 'side = "router"' in profile.partition("[values.RUST_LOG]")[2]
    assert "SGLANG_DEFAULT_THINKING" not in profile, "one profile cannot hold two values for it"


def test_a_missing_env_file_is_asked_for_and_then_taken(rack) -> None:
    (rack.folder / "nccl.env").rename(rack.folder / "elsewhere.env")
    code, document = rack.adopt("prefill.sh")
    assert code == Exit.USAGE
    assert "prefill.sh:4" in document["error"]["details"][0]
    assert f"--sourced {rack.folder}/nccl.env" in document["error"]["details"][0]
    assert not rack.out.exists() or not list(rack.out.rglob("*.toml"))
    code, _ = rack.adopt("prefill.sh", "--sourced", f"{rack.folder}/nccl.env=elsewhere.env")
    assert (code, rack.env("prefill-0")) == (Exit.OK, ENV)


def test_an_env_file_beside_the_script_is_found_there(bench) -> None:
    bench.write("a/nccl.env", NCCL)
    bench.script(PREFILL.replace("{folder}/", ""), name="a/serve.sh")
    assert bench.env("prefill-0")["NCCL_SOCKET_IFNAME"] == "bond0"


def test_nothing_that_exists_is_overwritten(rack) -> None:
    rack.adopt("prefill.sh")
    before = (rack.out / "fleet.toml").read_text()
    code, document = rack.adopt("decode.sh")
    assert (code, document["error"]["code"]) == (Exit.USAGE, "fleet_exists")
    assert (rack.out / "fleet.toml").read_text() == before


def test_another_numactl_stays_in_the_command(bench) -> None:
    for options in (
        "--interleave=all",
        "--cpunodebind=0 --membind=1",
        "--cpunodebind=0,1 --membind=0,1",
        "-m 0",
    ):
        bench.script(
            f"exec numactl {options} /opt/venv/bin/python -m sglang.launch_server --model m\n", "--name", "n"
        )
        engine = bench.fleet().engine("engine-0")
        assert engine.spec.numa is None
        assert engine.spec.command is not None and engine.spec.command[:2] == ["numactl", options.split()[0]]
        for file in ("fleet.toml", "profiles/adopted-n.toml"):
            (bench.out / file).unlink()
