"""What runs on a host is adopted over SSH and then deployed there: the same processes, in pdctl's units."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pdctl.__main__ import main
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.fleet.profile import engine_env
from tests.hosts.lab.host import LabHost, until

SITE = Path(__file__).parents[1] / "pdctl" / "adopt" / "site"
MODEL = "--model-path /m --served-model-name m"
PREFILL = f"""#!/bin/bash
set -euo pipefail
. /srv/nccl.env
export PYTHONPATH=/srv/site FAKE_DIR=/srv HF_TOKEN=hf_abcdefghijklmnopqrstuvwx
cd /srv
exec /usr/bin/python3 -m sglang.launch_server {MODEL} --disaggregation-mode prefill \\
  --host 0.0.0.0 --port 21000 --disaggregation-bootstrap-port 21001 --note "$NCCL_NOTE"
"""
NCCL = "export NCCL_NOTE='a  b \"c\"' NCCL_DEBUG=INFO\n"
DECODE = f"""[Unit]
Description=SGLang decode
[Service]
WorkingDirectory=/srv
NUMAPolicy=bind
NUMAMask=0
CPUAffinity=numa
EnvironmentFile=/srv/decode.env
ExecStart=/usr/bin/python3 -m sglang.launch_server {MODEL} --disaggregation-mode decode --port ${{PORT}} $REST
"""
DROP_IN = "[Service]\nEnvironment=FAKE_DIR=/srv UCX_TLS=tcp\n"
DECODE_ENV = "PYTHONPATH=/srv/site\nPORT=21002\nREST=--host 0.0.0.0 --api-key 'key-0123456789abcdef'\n"
ROUTER = """#!/bin/bash
export PYTHONPATH=/srv/site
exec python3 -m sglang_router.launch_router --pd-disaggregation --prefill http://{address}:21000 21001 \\
  --decode http://{address}:21002 --host 0.0.0.0 --port 21003
"""
# Of whoever started it; pdctl's unit is another.
STARTERS = (
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
    "LC_CTYPE",
    "PDCTL_INPUTS",
    "PDCTL_UNIT",
    "SHLVL",
    "_",
)
SAME = ("HOME", "LOGNAME", "USER", "SHELL", "LANG", "PATH", "PWD", "OLDPWD", "TERM")


@dataclass
class Scene:
    host: LabHost
    out: Path
    capture: Any

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        file = self.host.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def call(self, *argv: str) -> tuple[int, str]:
        self.capture.readouterr()
        code = main(["--fleet", str(self.out), *argv])
        found = self.capture.readouterr()
        return code, found.out + found.err

    def started(self, port: int) -> tuple[list[str], dict[str, str], str]:
        """What the process on `port` was started with; forgotten by having been read."""
        file = self.host.root / "srv" / f"{port}.json"
        until(file.exists, 30.0, f"nothing starts on {port}")
        until(lambda: file.read_text().endswith("]"), 5.0)
        argv, env, cwd = json.loads(file.read_text())
        file.unlink()
        return argv, {k: v for k, v in env.items() if k not in (*STARTERS, *SAME)}, cwd


@pytest.fixture
def scene(hosts: list[LabHost], home: Path, tmp_path: Path, capsys) -> Iterator[Scene]:
    """A prefill that a script started, a decode under a unit of the machine's, a router script, on h1."""
    host = hosts[0]
    made = Scene(host, tmp_path / "fleet", capsys)
    shutil.copytree(SITE, host.root / "srv" / "site", ignore=shutil.ignore_patterns("__pycache__"))
    made.write("/srv/nccl.env", NCCL)
    made.write("/srv/prefill.sh", PREFILL)
    made.write("/srv/router.sh", ROUTER.replace("{address}", host.address))
    made.write("/srv/decode.env", DECODE_ENV, 0o600)
    made.write("/etc/systemd/system/sgl-decode.service", DECODE)
    made.write("/etc/systemd/system/sgl-decode.service.d/more.conf", DROP_IN)
    host.sh("systemctl daemon-reload; systemctl start sgl-decode")
    host.sh("systemd-run --quiet --unit=by-hand bash /srv/prefill.sh")
    yield made
    made.call("down", "--yes")
    host.sh("systemctl stop sgl-decode by-hand; rm -rf /srv/* /etc/systemd/system/sgl-decode.service*; true")


def test_a_process_a_unit_and_a_script_of_a_host_are_one_fleet_and_run_as_before(scene: Scene) -> None:
    before = {port: scene.started(port) for port in (21000, 21002)}
    pid = scene.host.sh("systemctl show -p MainPID --value by-hand").strip()
    code, said = scene.call(
        "adopt", f"pid:{pid}", "unit:sgl-decode", "/srv/router.sh",
        "--ssh", f"h1={scene.host.address}", "--name", "lab", "--out", str(scene.out),
    )  # fmt: skip
    assert code == Exit.OK, said
    assert "key-0123456789abcdef" not in said and "hf_abc" not in said
    fleet = load_fleet(scene.out)
    assert [(u.name, u.port) for u in fleet.units()] == [
        ("prefill-0", 21000),
        ("decode-0", 21002),
        ("router", 21003),
    ]
    assert (fleet.engine("prefill-0").spec.numa, fleet.engine("decode-0").spec.numa) == (None, 0)
    assert engine_env(fleet, fleet.engine("decode-0"))["UCX_TLS"].origin.endswith(
        f"adopted-lab.toml:{line(scene)})"
    )
    scene.host.sh("systemctl stop sgl-decode by-hand")
    code, said = scene.call("deploy", "--yes")
    assert code == Exit.OK, said
    assert "canary through the router" in said
    assert {port: scene.started(port) for port in before} == before
    code, said = scene.call("deploy", "--yes")
    assert code == Exit.OK and "0 changes" in said, said
    code, said = scene.call("status")
    assert code == Exit.OK and "healthy" in said, said
    units = scene.host.sh("cat /etc/systemd/system/pdctl-*@lab-*.service.d/*.conf")
    assert "key-0123456789abcdef" not in units and "hf_abc" not in units


def line(scene: Scene) -> int:
    text = (scene.out / "profiles" / "adopted-lab.toml").read_text().splitlines()
    return text.index("[values.UCX_TLS]") + 1


def test_a_process_that_is_no_engine_is_refused_and_a_unit_that_is_not_there(scene: Scene) -> None:
    ssh = ("--ssh", f"h1={scene.host.address}", "--out", str(scene.out))
    code, said = scene.call("adopt", "pid:1", *ssh)
    assert code == Exit.USAGE and "no engine or router" in said
    code, said = scene.call("adopt", "unit:nothing", *ssh)
    assert code == Exit.USAGE and "there is no such unit on h1" in said
    code, said = scene.call("adopt", "/srv/nothing.sh", *ssh)
    assert code == Exit.USAGE and "There is no file /srv/nothing.sh on h1" in said
    assert not (scene.out / "fleet.toml").exists()


def test_what_another_user_may_not_read_is_read_with_sudo(scene: Scene, home: Path) -> None:
    config = home / ".ssh" / "config"
    config.write_text(config.read_text().replace("User root", "User ops"))
    pid = scene.host.sh("systemctl show -p MainPID --value sgl-decode").strip()
    code, said = scene.call(
        "adopt", f"pid:{pid}", "--ssh", f"h1={scene.host.address}", "--out", str(scene.out)
    )
    assert code == Exit.OK, said
    engine = load_fleet(scene.out).engine("decode-0")
    assert (engine.port, engine.spec.numa) == (21002, 0)
