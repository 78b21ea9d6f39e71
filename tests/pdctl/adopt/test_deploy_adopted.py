"""An adopted fleet is deployed: its processes are what the scripts start, and no admin verb reaches them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pdctl.__main__ import main
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.init import free_ports

SITE = Path(__file__).with_name("site")
KEY = "key-0123456789abcdef"
ENGINE = """#!/bin/bash
set -euo pipefail
export PYTHONPATH={site} FAKE_DIR={folder} PATH
export SGLANG_DISAGGREGATION_NIXL_BACKEND=UCX NCCL_DEBUG="a b\\"c\\\\d"
export HF_TOKEN=hf_abcdefghijklmnopqrstuvwx
cd {folder}
exec {python} -m sglang.launch_server --model-path /m --served-model-name m --api-key {key} \\
  --disaggregation-mode {role} --port {port} --note 'it'\\''s $HOME' {more} > {folder}/{role}.log 2>&1
"""
ROUTER = """#!/bin/bash
export PYTHONPATH={site}
exec {python} -m sglang_router.launch_router --pd-disaggregation --prefill http://127.0.0.1:{prefill} \\
  {bootstrap} --decode http://127.0.0.1:{decode} --port {port}
"""
# Of a shell or of the keeper, and of nobody's making in the script.
NOT_THEIRS = ("_", "SHLVL", "PWD", "OLDPWD", "PDCTL_UNIT", "LC_CTYPE")


@dataclass
class Rack:
    folder: Path
    ports: list[int]
    capture: Any

    @property
    def out(self) -> Path:
        return self.folder / "fleet"

    def call(self, *argv: str) -> tuple[int, str]:
        self.capture.readouterr()
        code = main(["--fleet", str(self.out), *argv])
        found = self.capture.readouterr()
        return code, found.out + found.err

    def adopt(self, *names: str) -> None:
        code, said = self.call(
            "adopt",
            *(str(self.folder / n) for n in names),
            "--out",
            str(self.out),
            "--name",
            "rack",
            "--set",
            "PATH",
        )
        assert code == Exit.OK, said

    def started(self, port: int) -> tuple[list[str], dict[str, str], str]:
        """What the process on `port` was started with."""
        argv, env, cwd = json.loads((self.folder / f"{port}.json").read_text())
        return argv, {k: v for k, v in env.items() if k not in NOT_THEIRS}, cwd

    def asked(self) -> set[str]:
        """Paths that engines were asked for."""
        return {line for file in self.folder.glob("*.asked") for line in file.read_text().splitlines()}

    def behave(self, port: int, how: str) -> None:
        (self.folder / f"{port}.behave").write_text(how)

    def lives(self) -> dict[str, int | None]:
        with Context(load_fleet(self.out)) as ctx:
            return {name: status.pid for name, status in ctx.units("local").status().items()}


@pytest.fixture
def rack(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rack]:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    ports = free_ports(tmp_path, 4)
    prefill, decode, router, bootstrap = ports
    values = {"site": SITE, "folder": tmp_path, "python": sys.executable, "key": KEY}
    more = f"--disaggregation-bootstrap-port {bootstrap}"
    for name, text in {
        "prefill.sh": ENGINE.format(**values, role="prefill", port=prefill, more=more),
        "decode.sh": ENGINE.format(**values, role="decode", port=decode, more=""),
        "router.sh": ROUTER.format(
            **values, prefill=prefill, decode=decode, port=router, bootstrap=bootstrap
        ),
    }.items():
        (tmp_path / name).write_text(text)
    made = Rack(tmp_path, ports, capsys)
    yield made
    if (made.out / "fleet.toml").exists():
        made.call("down", "--yes")


def by_bash(rack: Rack, script: str, port: int) -> tuple[list[str], dict[str, str], str]:
    """What the script itself starts, in a unit's own small environment."""
    env = {
        k: os.environ[k]
        for k in ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "TMPDIR")
        if k in os.environ
    }
    child = subprocess.Popen(["/bin/bash", str(rack.folder / script)], env=env)
    try:
        end = time.monotonic() + 20
        while not (rack.folder / f"{port}.json").exists() and time.monotonic() < end:
            time.sleep(0.02)
        return rack.started(port)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        (rack.folder / f"{port}.json").unlink()


def test_a_unit_runs_what_the_script_runs(rack: Rack) -> None:
    prefill, decode = rack.ports[:2]
    scripts = {prefill: by_bash(rack, "prefill.sh", prefill), decode: by_bash(rack, "decode.sh", decode)}
    rack.adopt("prefill.sh", "decode.sh", "router.sh")
    code, said = rack.call("deploy", "--yes")
    assert code == Exit.OK, said
    assert {port: rack.started(port) for port in scripts} == scripts
    for file in (rack.out / ".pdctl" / "host").rglob("*.json"):
        if "deployments" not in file.parts:
            assert KEY not in file.read_text(), file


def test_it_is_deployed_once_proved_and_looked_at_without_an_admin_verb(rack: Rack) -> None:
    rack.adopt("prefill.sh", "decode.sh", "router.sh")
    code, plan = rack.call("deploy", "--plan")
    assert code == Exit.OK and "start prefill-0" in plan and "release" not in plan
    assert KEY not in plan and "hf_abc" not in plan
    code, said = rack.call("deploy", "--yes")
    assert code == Exit.OK, said
    assert "canary prefill-0 -> decode-0" in said and "canary through the router" in said
    lives = rack.lives()
    code, said = rack.call("deploy", "--yes")
    assert code == Exit.OK and "0 changes" in said and rack.lives() == lives
    code, said = rack.call("status")
    assert code == Exit.OK and "kind sglang-router, ready" in said, said
    assert "4096/4096" in said and f"decode http://127.0.0.1:{rack.ports[1]}: healthy, 0 active" in said, said
    code, said = rack.call("diagnose")
    assert code == Exit.OK and "prefill-0 and decode-0 list no requests" in said, said
    code, said = rack.call("logs", "prefill-0", "-n", "5")
    assert code == Exit.OK and f"serving prefill on {rack.ports[0]}" in said
    assert {line for line in rack.asked() if line.startswith("POST")} == {"POST /v1/completions"}
    assert rack.asked() > {"GET /server_info", "GET /v1/loads?include=all", "GET /metrics"}


def test_what_computes_a_token_is_asked_only_when_that_is_wanted(rack: Rack) -> None:
    rack.adopt("prefill.sh", "decode.sh")
    rack.call("deploy", "--yes")
    for file in rack.folder.glob("*.asked"):
        file.unlink()
    code, said = rack.call("diagnose")
    assert code == Exit.OK and "GET /health" not in rack.asked(), said
    code, said = rack.call("diagnose", "--probes")
    assert code == Exit.OK and "GET /health" in rack.asked(), said


def test_a_changed_value_restarts_both_sides_and_says_what_it_cannot_know(rack: Rack) -> None:
    rack.adopt("prefill.sh", "decode.sh", "router.sh")
    rack.call("deploy", "--yes")
    before = rack.lives()
    profile = rack.out / "profiles" / "adopted-rack.toml"
    profile.write_text(profile.read_text().replace('value = "UCX"', 'value = "POSIX"'))
    code, said = rack.call("deploy", "--yes")
    assert code == Exit.OK, said
    after = rack.lives()
    assert after["router"] == before["router"]
    assert after["prefill-0"] != before["prefill-0"] and after["decode-0"] != before["decode-0"]
    assert rack.started(rack.ports[0])[1]["SGLANG_DISAGGREGATION_NIXL_BACKEND"] == "POSIX"
    code, said = rack.call("restart", "--co", "--yes")
    assert code == Exit.OK, said
    assert "holds nothing" in said and "Nothing was drained" in said and "linked is not known" in said
    assert rack.asked() == {"GET /health", "POST /v1/completions"}


def test_what_does_not_start_goes_back_to_what_did(rack: Rack) -> None:
    rack.adopt("prefill.sh", "decode.sh", "router.sh")
    rack.call("deploy", "--yes")
    profile = rack.out / "profiles" / "adopted-rack.toml"
    good = profile.read_text()
    profile.write_text(good + '\n[values.FAKE_EXIT]\nvalue = "3"\nside = "decode"\nreason = "a mistake"\n')
    code, said = rack.call("deploy", "--yes")
    assert code != Exit.OK and "going back to deployment" in said, said
    assert all(rack.lives().values())
    assert "FAKE_EXIT" not in rack.started(rack.ports[1])[1]
    profile.write_text(good)
    code, said = rack.call("deploy", "--yes")
    assert code == Exit.OK and "0 changes" in said, said


def test_one_unit_is_restarted_and_all_are_stopped(rack: Rack) -> None:
    rack.adopt("prefill.sh", "decode.sh", "router.sh")
    rack.call("deploy", "--yes")
    before = rack.lives()
    code, said = rack.call("restart", "decode-0", "--yes")
    assert code == Exit.OK, said
    assert rack.lives()["decode-0"] != before["decode-0"]
    code, said = rack.call("down", "--yes")
    assert code == Exit.OK, said
    assert not any(rack.lives().values())
    code, _ = rack.call("status")
    assert code == Exit.FINDINGS


def test_a_sick_engine_is_not_called_healthy(rack: Rack) -> None:
    rack.adopt("prefill.sh", "decode.sh", "router.sh")
    rack.call("deploy", "--yes")
    rack.behave(rack.ports[1], "sick")
    code, said = rack.call("status")
    assert code == Exit.FINDINGS and "/server_info, which asks its scheduler: HTTP 503" in said, said
    code, said = rack.call("diagnose", "--json", "--bundle", str(rack.folder / "b"))
    live = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert code == Exit.FINDINGS and live["findings"][0]["subject"] == "decode-0", said
    with tarfile.open(rack.folder / "b.tar.gz") as kept:
        for entry in kept:
            text = kept.extractfile(entry).read().decode()  # type: ignore[union-attr]
            assert KEY not in text and "hf_abc" not in text, entry.name
            assert entry.mode == 0o600
    assert (rack.folder / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    code, said = rack.call("diagnose", "--json", "--from", str(rack.folder / "b.tar.gz"))
    again = json.loads(said)
    assert live.pop("seconds") >= 1.0 and again.pop("seconds") >= 0.0
    assert again == live


def test_an_engine_that_does_not_start_fails_the_deploy_with_its_words(rack: Rack) -> None:
    rack.adopt("prefill.sh", "decode.sh", "router.sh")
    rack.behave(rack.ports[0], "exit=3")
    code, said = rack.call("deploy", "--yes", "--wait", "20")
    assert code != Exit.OK
    assert "it cannot start: the test wants it so" in said


def test_one_engine_without_a_router_is_a_fleet_too(rack: Rack) -> None:
    rack.adopt("prefill.sh")
    code, said = rack.call("deploy", "--yes")
    assert code == Exit.OK and "no router in the fleet file" in said, said
    code, said = rack.call("status")
    assert code == Exit.OK and "no router in the fleet file" in said
    code, said = rack.call("restart", "--co", "--yes")
    assert code == Exit.OK, said
    for verb in (("requests",), ("resume",), ("abort", "x")):
        code, said = rack.call(*verb)
        assert code == Exit.USAGE and "names no router" in said, said


def test_admin_verbs_are_refused_with_a_sentence(rack: Rack) -> None:
    rack.adopt("prefill.sh", "decode.sh", "router.sh")
    for verb in (("requests",), ("resume",), ("abort", "x")):
        code, said = rack.call(*verb)
        assert code == Exit.USAGE and "kind sglang-router" in said, said
