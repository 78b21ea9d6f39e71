"""Engines and routers of other kinds in a fleet file: what they must say, and that it agrees with itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.errors import ConfigError
from pdctl.fleet.load import load_fleet

FLEET = """schema = 1
[fleet]
name = "f"
profile = "p"
[model]
path = "/m"
name = "m"
[hosts.local]
[cells.a.engines.prefill-0]
role = "prefill"
kind = "sglang"
host = "local"
port = 30000
bootstrap_port = 8998
tp = 2
command = [
  "numactl", "-m", "0", "python", "-m", "sglang.launch_server", "--model-path=/m", "--served-model-name", "m",
  "--disaggregation-mode", "prefill", "--tp", "2", "--port", "30000",
  "--disaggregation-bootstrap-port", "8998",
]
[router]
kind = "sglang-router"
host = "local"
port = 8100
command = ["python", "-m", "sglang_router.launch_router", "--port", "8100"]
"""
VLLM = """[cells.b.engines.v]
role = "both"
kind = "vllm"
host = "local"
port = 8000
command = ["vllm", "serve", "/m", "--served-model-name", "m"]
"""


def load(folder: Path, text: str) -> list[str]:
    """The problems that loading finds."""
    (folder / "profiles").mkdir(exist_ok=True)
    (folder / "profiles" / "p.toml").write_text('schema = 1\nname = "p"\n')
    (folder / "fleet.toml").write_text(text)
    try:
        load_fleet(folder)
    except ConfigError as error:
        return [d.replace(f"{folder}/", "") for d in error.details]
    return []


def test_a_fleet_of_other_kinds_loads_and_its_model_is_what_the_command_says(tmp_path: Path) -> None:
    assert load(tmp_path, FLEET + VLLM) == []
    text = FLEET.replace('path = "/m"', 'path = "org/m"').replace("=/m", "=org/m")
    assert load(tmp_path, text) == []
    assert load_fleet(tmp_path).model.path == "org/m"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "port = 30000",
            "port = 30001",
            "fleet.toml:13: cells.a.engines.prefill-0.port: is 30001, but command",
        ),
        ('role = "prefill"', 'role = "decode"', "prefill-0.role: is decode, but command starts a prefill."),
        ("port = 8998", "port = 8999", "prefill-0.bootstrap_port: is 8999, but command listens on 8998."),
        ("tp = 2", "tp = 4", "prefill-0.tp: is 4, but command says 2."),
        ('path = "/m"', 'path = "/n"', "prefill-0.command: serves /m, but model.path is /n."),
        ('name = "m"', 'name = "n"', "prefill-0.command: serves it as m, but model.name is n."),
        ('kind = "sglang"\n', 'kind = "vllm"\n', "prefill-0.kind: is vllm, but command starts sglang."),
        ("port = 8100", "port = 8101", "router.port: is 8101, but command listens on 8100."),
        ("tp = 2", "tp = 2\npages = 5", "prefill-0.pages: is for the bundled engine"),
        ("tp = 2", 'tp = 2\ncwd = "x"', "prefill-0.cwd: is no absolute path."),
        ('"--port=8100"', "", ""),
        ("tp = 2", 'tp = 2\ngpus = [0]\nenv = { CUDA_VISIBLE_DEVICES = "1" }', "prefill-0.gpus: says what"),
        ("tp = 2", 'tp = 2\nsecrets = "none.env"', "prefill-0.secrets: "),
        ('"--tp", "2"', '"--tp", "2", "--api-key", "{secret:K}"', "prefill-0.command: needs the secret K"),
        ('kind = "sglang-router"\n', "", "router: the bundled router knows no sglang engines"),
    ],
)
def test_what_disagrees_is_a_problem_with_its_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    found = load(tmp_path, FLEET.replace(old, new, 1))
    assert any(problem in line for line in found) if problem else not found


def test_a_foreign_engine_needs_a_command_and_the_bundled_one_has_none(tmp_path: Path) -> None:
    without = FLEET.partition("command")[0] + FLEET[FLEET.index("[router]") :]
    assert any("prefill-0.command: is missing" in line for line in load(tmp_path, without))
    bundled = FLEET.replace('kind = "sglang"\n', "", 1).replace("[router]", "[router]\n", 1)
    assert any("prefill-0.command: is for another kind" in line for line in load(tmp_path, bundled))


def test_only_a_fleet_of_foreign_engines_may_have_no_router(tmp_path: Path) -> None:
    alone = FLEET[: FLEET.index("[router]")]
    assert load(tmp_path, alone) == []
    fleet = load_fleet(tmp_path)
    assert [u.name for u in fleet.units()] == ["prefill-0"] and fleet.control == "local"
    bundled = alone + VLLM.replace('kind = "vllm"\n', "").partition("command")[0]
    assert any("router: is missing." in line for line in load(tmp_path, bundled))
