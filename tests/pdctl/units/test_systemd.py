"""Unit files: what is common is data, what differs is quoted for systemd."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.units.envfile import parse_env, render_env
from pdctl.units.spec import NO_RESTART, UnitSpec
from pdctl.units.systemd import TEMPLATES, drop_in, quote, render, unit_name

SPEC = UnitSpec(
    name="prefill-0",
    argv=(sys.executable, "-m", "engine", "serve", "--model", "/models/a b%c$d"),
    env_file="/opt/pdctl/env/prefill-0.env",
    cwd="/opt/pdctl/releases/abc",
    log="/x",
    run="/x",
    inputs="d1",
    env={"PYTHONPATH": "/opt/pdctl/releases/abc"},
    watchdog=30.0,
    stop_timeout=45.0,
)


def test_a_unit_is_its_template_and_a_drop_in() -> None:
    found = render("prefill", "demo-prefill-0", SPEC)
    assert set(found) == {"prefill@.service", "prefill@demo-prefill-0.service.d/pdctl.conf"}
    text = found["prefill@demo-prefill-0.service.d/pdctl.conf"]
    assert '"/models/a b%%c$$d"' in text
    assert "EnvironmentFile=/opt/pdctl/env/prefill-0.env" in text
    assert "Environment=PDCTL_INPUTS=d1" in text
    assert "TimeoutStopSec=45" in text and "WatchdogSec=30" in text
    assert unit_name("both", "x") == "decode@x.service"


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_an_engine_template_holds_the_policy_of_the_keeper(role: str) -> None:
    text = render(role, "x", SPEC)[f"{role}@.service"]
    for line in ("Type=notify", "Restart=on-failure", "KillMode=mixed", "LimitMEMLOCK=infinity"):
        assert line in text.splitlines()
    assert f"RestartPreventExitStatus={' '.join(map(str, NO_RESTART))}" in text
    assert f"StartLimitBurst={SPEC.burst}" in text and f"StartLimitIntervalSec={SPEC.burst_window:g}" in text


def test_words_that_a_unit_file_cannot_hold_are_refused() -> None:
    assert quote('say "hi" \\') == '"say \\"hi\\" \\\\"'
    assert quote("") == '""'
    with pytest.raises(ValueError, match="line break"):
        drop_in(replace(SPEC, argv=("a\nb",)))
    with pytest.raises(ValueError, match="NAME holds a line break"):
        render_env({"NAME": "a\nb"})


def test_env_files_are_read_back_as_written() -> None:
    values = {"A": 'quote " and \\ and $x', "B": "", "C": "  spaces  ", "D": "#no comment", "E": '\\"'}
    assert parse_env(render_env(values)) == values
    assert parse_env("# c\n\nPLAIN=a b\n") == {"PLAIN": "a b"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("role", sorted(set(TEMPLATES)))
def test_systemd_accepts_it(role: str, tmp_path: Path) -> None:
    for name, text in render(role, "demo-x", SPEC).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit_name(role, "demo-x"))],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "demo-x" not in found.stderr, found.stderr
