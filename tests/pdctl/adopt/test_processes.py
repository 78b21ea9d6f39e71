"""A running process is taken as it is: words, environment, folder; its session's variables are not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.adopt.process import adopt_process
from pdctl.exits import Exit

SLEEPER = "import time, sys; sys.stdout.write('up\\n'); sys.stdout.flush(); time.sleep(600)"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m sglang.launch_server …` whose module is one that sleeps."""
    package = tmp_path / "site" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(SLEEPER)
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tmp_path / "site"),
        "NCCL_DEBUG": "a=b c",
        "HF_TOKEN": "hf_abcdefghijklmnopqrstuv",
        "SSH_CLIENT": "10.0.0.1 1 2",
        "TERM": "xterm",
        "CUDA_VISIBLE_DEVICES": "2,3",
    }
    argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", "/m", "--port", "31000", "", "a b"]
    child = subprocess.Popen(argv, env=env, cwd=tmp_path, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"up\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_process_is_taken_whole(bench, engine, said) -> None:
    code, document = bench.adopt(f"pid:{engine.pid}")
    assert code == Exit.OK, document
    spec = bench.fleet().engine("engine-0").spec
    assert spec.command == list(engine.args)
    assert (spec.cwd, spec.gpus) == (str(bench.folder), [2, 3])
    env = bench.env("engine-0")
    assert env["NCCL_DEBUG"] == "a=b c" and env["PYTHONPATH"] == f"{bench.folder}/site"
    assert env["HF_TOKEN"] == "hf_abcdefghijklmnopqrstuv"
    assert not {"SSH_CLIENT", "TERM"} & set(env)
    assert "hf_abcdefghijklmnopqrstuv" not in (bench.out / "fleet.toml").read_text() + str(document)
    assert any("SSH_CLIENT" in line for line in said(document, "no effect"))


def test_its_parent_is_pointed_on(bench, engine) -> None:
    code, document = bench.adopt(f"pid:{os.getpid()}")
    assert (code, document["error"]["code"]) == (Exit.USAGE, "no_engine")
    assert f"pid:{engine.pid}" in document["error"]["hint"]


def test_a_pid_that_is_gone_gets_a_sentence(bench) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    end = time.monotonic() + 10
    while Path(f"/proc/{child.pid}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    _, document = bench.adopt(f"pid:{child.pid}")
    assert f"there is no process {child.pid}" in document["error"]["message"]


FOUND = {
    "argv": ["python", "-m", "sglang.launch_server", "--model-path", "m"],
    "env": [],
    "cwd": "/",
    "cpus": "0-31",
    "all_cpus": "0-63",
    "policies": ["bind:0"],
    "nodes": {"0": "0-31", "1": "32-63"},
    "children": [],
    "contained": False,
}


@pytest.mark.parametrize(
    ("changes", "numa", "grades"),
    [
        ({}, 0, ["used"]),
        ({"cpus": "32-63", "policies": ["bind:1"]}, 1, ["used"]),
        ({"cpus": "0-63", "policies": ["default"]}, None, []),
        ({"cpus": "0-63"}, None, ["not understood"]),
        ({"policies": ["default"]}, None, ["not understood"]),
        ({"policies": ["interleave:0-1"], "cpus": "0-63"}, None, ["not understood"]),
        ({"policies": [], "cpus": "0-63"}, None, ["assumed"]),
        ({"contained": True}, 0, ["used", "not understood"]),
    ],
)
def test_a_binding_to_one_node_is_numa_and_any_other_is_said(
    changes: dict[str, object], numa: int | None, grades: list[str]
) -> None:
    service, notes = adopt_process({**FOUND, **changes}, "pid:1")
    assert service.numa == numa
    assert [str(n.grade) for n in notes if n.what != "starts it"] == grades
