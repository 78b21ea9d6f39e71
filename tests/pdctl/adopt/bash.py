"""Run a script under real bash with stub `python` and `numactl`, and see what it would have started.

The stubs start nothing: `numactl` notes its options and becomes what stands behind them, `python` writes
its argv, environment and folder to a file, one JSON line a start.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Of every shell, whatever the script does.
SHELLS_OWN = ("PWD", "OLDPWD", "SHLVL", "_", "NUMA_SEEN")
_PYTHON = """#!{python} -IS
import json, os, sys
with open(os.environ["STARTED"], "a") as out:
    print(json.dumps([sys.argv[0], sys.argv[1:], dict(os.environ), os.getcwd()]), file=out)
"""
_NUMACTL = """#!/bin/bash -p
seen=()
while [[ $1 == -* ]]; do
  case $1 in -N | -m | --cpunodebind | --membind) seen+=("$1=$2"); shift ;; *) seen+=("$1") ;; esac
  shift
done
NUMA_SEEN="${seen[*]}" exec "$@"
"""


@dataclass(frozen=True)
class Start:
    """One start as the process saw it."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    numa: str


def make_stubs(folder: Path) -> Path:
    """A folder for PATH."""
    stubs = folder / "stubs"
    stubs.mkdir()
    for name, text in (("python", _PYTHON.replace("{python}", sys.executable)), ("numactl", _NUMACTL)):
        (stubs / name).write_text(text)
        (stubs / name).chmod(0o755)
    return stubs


def run(argv: list[str], env: dict[str, str], lab: Path, cwd: Path) -> list[Start]:
    """What `argv` started in the end, in order; nothing when it failed before."""
    out = lab / "started.json"
    out.unlink(missing_ok=True)
    if not cwd.is_dir():
        return []
    subprocess.run(
        argv,
        env={**base(lab), **env},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=30,
    )
    return [_start(line) for line in out.read_text().splitlines()] if out.exists() else []


def base(lab: Path) -> dict[str, str]:
    """The environment that everything is started in: the same for bash and for what was adopted."""
    return {
        "LC_ALL": "C.UTF-8",
        "LAB": str(lab),
        "HOME": str(lab),
        "PATH": f"{lab}/stubs:/usr/bin:/bin",
        "STARTED": f"{lab}/started.json",
    }


def _start(line: str) -> Start:
    name, args, env, cwd = json.loads(line)
    options = env.get("NUMA_SEEN", "").replace("-N=", "--cpunodebind=").replace("-m=", "--membind=")
    kept = {k: v for k, v in env.items() if k not in SHELLS_OWN}
    return Start([name, *args], kept, cwd, " ".join(sorted(options.split())))
