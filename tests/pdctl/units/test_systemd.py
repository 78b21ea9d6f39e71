"""Unit files: what is common is data, what differs is quoted for systemd."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.errors import ConfigError
from pdctl.fleet.shipped import package_dir
from pdctl.units.envfile import parse_env, render_env
from pdctl.units.spec import NO_RESTART, UnitSpec
from pdctl.units.systemd import program
from pdctl.units.systemd_render import NOT_FOR_USERS, quote, render
from pdctl.units.systemhost import LOGIN, TEMPLATES

ROOT = "/opt/pdctl/demo"
SPEC = UnitSpec(
    name="prefill-0",
    argv=(sys.executable, "-m", "engine", "serve", "--model", "/models/a b%c$d"),
    env_file=f"{ROOT}/env/prefill-0.env",
    cwd=f"{ROOT}/trees/abc",
    log="/x",
    run="/x",
    inputs="d1",
    env={"PYTHONPATH": f"{ROOT}/trees/abc"},
    watchdog=30.0,
    stop_timeout=45.0,
    role="prefill",
    fleet="demo",
    cell="a",
)
UNIT = "pdctl-prefill@demo-prefill-0.service"
DROP_IN = f"{UNIT}.d/pdctl.conf"


def test_a_unit_is_its_template_and_a_drop_in_and_its_cells_target_likewise() -> None:
    found = render(SPEC, "system", ROOT)
    target = "pdctl-cell@demo-a.target.d/prefill-0.conf"
    assert set(found) == {"pdctl-prefill@.service", DROP_IN, "pdctl-cell@.target", target}
    lines = found[DROP_IN].splitlines()
    for line in (
        f'ExecStart={sys.executable} -m engine serve --model "/models/a b%%c$$d"',
        f"EnvironmentFile={ROOT}/env/prefill-0.env",
        "Environment=PDCTL_INPUTS=d1",
        "TimeoutStopSec=45",
        "WatchdogSec=30",
        f"User={LOGIN}",
        "PartOf=pdctl-cell@demo-a.target",
    ):
        assert line in lines
    assert f"Wants={UNIT}" in found[target].splitlines()
    assert "pdctl-decode@demo-prefill-0.service.d/pdctl.conf" in render(
        replace(SPEC, role="both"), "system", ROOT
    )
    assert set(render(replace(SPEC, role="router", cell=""), "system", ROOT)) == {
        "pdctl-router@.service",
        "pdctl-router@demo-prefill-0.service.d/pdctl.conf",
    }


def test_every_template_is_used() -> None:
    shipped = {p.name for p in package_dir("systemd").iterdir() if "@" in p.name}
    rendered = {n for role in TEMPLATES for n in render(replace(SPEC, role=role), "system", ROOT)}
    assert {f"pdctl-{name}" for name in shipped} == {n for n in rendered if "@." in n}


@pytest.mark.parametrize("role", ["prefill", "decode", "router"])
def test_a_template_holds_the_policy_of_the_keeper(role: str) -> None:
    spec = replace(SPEC, role=role)
    found = render(spec, "system", ROOT)
    lines = found[f"pdctl-{role}@.service"].splitlines()
    for line in ("Type=notify", "Restart=on-failure", "KillMode=mixed", "NotifyAccess=main"):
        assert line in lines
    assert f"RestartPreventExitStatus={' '.join(map(str, NO_RESTART))}" in lines
    assert f"RestartSec={spec.restart_delay:g}" in lines
    assert (
        f"StartLimitBurst={spec.burst}" in lines and f"StartLimitIntervalSec={spec.burst_window:g}" in lines
    )
    assert ("LimitMEMLOCK=infinity" in lines) == (role != "router")
    drop_in = found[f"pdctl-{role}@demo-prefill-0.service.d/pdctl.conf"]
    assert "Restart" not in drop_in and "StartLimit" not in drop_in and "Type" not in drop_in


def test_what_a_spec_changes_of_the_policy_is_in_its_drop_in() -> None:
    spec = replace(
        SPEC, notify=False, restart=False, restart_delay=0.2, burst=2, burst_window=9.0, no_restart=()
    )
    lines = render(spec, "system", ROOT)[DROP_IN].splitlines()
    for line in ("Type=exec", "Restart=no", "RestartSec=0.2", "StartLimitBurst=2", "StartLimitIntervalSec=9"):
        assert line in lines
    assert lines.count("RestartPreventExitStatus=") == 2  # the empty one takes back the template's


def test_numa_is_bound_as_numactl_does() -> None:
    lines = render(replace(SPEC, numa=1), "system", ROOT)[DROP_IN].splitlines()
    assert {"NUMAPolicy=bind", "NUMAMask=1", "CPUAffinity=numa"} <= set(lines)
    assert "NUMA" not in render(SPEC, "system", ROOT)[DROP_IN]


def test_a_users_manager_gets_nothing_that_it_cannot_do() -> None:
    for role in TEMPLATES:
        for name, text in render(replace(SPEC, role=role), "user", ROOT).items():
            keys = {line.partition("=")[0] for line in text.splitlines()}
            assert not keys & NOT_FOR_USERS, name
            assert not {"multi-user.target", "network-online.target"} & set(text.replace("=", " ").split())
            assert "After=remote-fs" not in text and "After=nvidia" not in text
    assert "NoNewPrivileges=yes" in render(SPEC, "user", ROOT)["pdctl-prefill@.service"]


def test_a_unit_that_lies_below_tmp_keeps_the_real_one() -> None:
    spec = replace(SPEC, cwd="/tmp/fleet/trees/abc")
    assert "PrivateTmp=no" in render(spec, "system", "/tmp/fleet")[DROP_IN].splitlines()
    elsewhere = replace(SPEC, argv=("/usr/bin/python3", *SPEC.argv[1:]))
    assert "PrivateTmp" not in render(elsewhere, "system", ROOT)[DROP_IN]


def test_words_that_a_unit_file_cannot_hold_are_refused() -> None:
    assert quote('say "hi" \\') == '"say \\"hi\\" \\\\"'
    assert quote("") == '""'
    for bad in (replace(SPEC, argv=("a\nb",)), replace(SPEC, cwd="a\nb"), replace(SPEC, env={"A": "a\nb"})):
        with pytest.raises(ConfigError, match=r"prefill-0: .* holds a line break"):
            render(bad, "system", ROOT)
    with pytest.raises(ConfigError, match="prefill-0: librarian has no unit"):
        render(replace(SPEC, role="librarian"), "system", ROOT)
    with pytest.raises(ValueError, match="NAME holds a line break"):
        render_env({"NAME": "a\nb"})


def test_env_files_are_read_back_as_written() -> None:
    values = {"A": 'quote " and \\ and $x', "B": "", "C": "  spaces  ", "D": "#no comment", "E": '\\"'}
    assert parse_env(render_env(values)) == values
    assert parse_env("# c\n\nPLAIN=a b\n") == {"PLAIN": "a b"}
    # Line ends of Unicode are none to systemd.
    odd = {"A": "one\u2028two\x85three\x0bfour"}
    assert parse_env(render_env(odd)) == odd


def test_the_host_tool_is_one_program_that_old_pythons_read() -> None:
    source = program().decode()
    tree = ast.parse(source, feature_version=(3, 9))
    modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert {(m or "").partition(".")[0] for m in modules} | names <= set(sys.stdlib_module_names)
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.Match)]
    said = subprocess.run([sys.executable, "-", "probe", "{}"], input=program(), capture_output=True)
    assert b"KeyError: 'root'" in said.stderr  # it runs, as far as what it was asked allows


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("role", sorted(set(TEMPLATES)))
def test_systemd_accepts_it(role: str, tmp_path: Path) -> None:
    spec = replace(SPEC, role=role, numa=0)
    for name, text in render(spec, "system", ROOT).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(LOGIN, "root"))
    for unit in (f"pdctl-{TEMPLATES[role]}demo-prefill-0.service", "pdctl-cell@demo-a.target"):
        found = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit)],
            env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "pdctl" not in found.stderr, found.stderr
