"""An operator's laptop: `pip install .` alone brings no torch and no engine dependency, and pdctl works."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHIPPED = ("pdctl", "engine", "kernels", "profiles", "systemd", "pyproject.toml", "README.md", "LICENSE")


def run(*argv: object, cwd: Path) -> str:
    done = subprocess.run([str(a) for a in argv], cwd=cwd, text=True, capture_output=True, timeout=240)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def test_pdctl_alone(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in SHIPPED:
        item = ROOT / name
        copy = shutil.copytree if item.is_dir() else shutil.copy
        copy(item, source / name)
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", source, cwd=tmp_path)
    shutil.rmtree(source)
    names = {line.split("==")[0].lower() for line in run(python, "-m", "pip", "freeze", cwd=tmp_path).split()}
    assert not names & {"torch", "triton", "nixl", "numpy", "msgspec"}, names
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    pdctl = python.parent / "pdctl"
    assert "wrote" in run(pdctl, "init", "--local", cwd=fleet)
    assert "production" in run(pdctl, "profile", "list", cwd=fleet)
    assert "PD602" in run(pdctl, "explain", "PD602", cwd=fleet)
    page = "from pdctl.supervisor.web import app; print(app._file('page.js', 'text/javascript'))"
    assert "function" in run(python, "-c", page, cwd=fleet)  # the supervisor's pages are in the wheel
