"""Runs on a host through `python3 -`: the venv of a release, made of locked wheels or from the host's index.

Python >= 3.9 and nothing else; pdctl appends the call. One verb:

venv  {root, id, lock, index, wheels: [[sha256, file]…], pip: [sha256, file] or null, seconds}

It is made under another name and gets its own when it is whole. Its Python runs pip out of `pip`, a wheel,
so the host needs no ensurepip (Debian has it in a package of its own); without that wheel it does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

Entry = dict[str, Any]


class Problem(Exception):
    """Something to tell the operator, without a traceback."""


def build(ask: Entry) -> Entry:
    folder = os.path.join(ask["root"], "venvs")
    target = os.path.join(folder, ask["id"])
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        # Left by a run that was killed; or a venv whose Python is gone.
        if name.startswith(".") or name == ask["id"]:
            shutil.rmtree(os.path.join(folder, name))
    for wheel in [*ask["wheels"], *([ask["pip"]] if ask["pip"] else [])]:
        verify(ask["root"], *wheel)
    temporary = tempfile.mkdtemp(prefix="." + ask["id"] + ".", dir=folder)
    try:
        fill(ask, os.path.join(temporary, "venv"), temporary)
        relocate(os.path.join(temporary, "venv"), target)
        os.sync()
        os.rename(os.path.join(temporary, "venv"), target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return {"venv": ask["id"]}


def verify(root: str, sha256: str, name: str) -> None:
    """A wheel that is not what its folder says was damaged here: it goes, and the next run sends it again."""
    path = os.path.join(root, "wheels", sha256, name)
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    if digest.hexdigest() != sha256:
        shutil.rmtree(os.path.dirname(path))
        raise Problem(f"{path} was damaged on this host and is removed; run the same again")


def fill(ask: Entry, venv: str, beside: str) -> None:
    end = time.monotonic() + ask["seconds"]
    if ask["pip"] is None and importlib.util.find_spec("ensurepip") is None:
        raise Problem(
            f"{sys.executable} has no ensurepip, so it can make no venv with pip; "
            "install python3-venv on this host, or pdctl where ensurepip is"
        )
    without = ["--without-pip"] if ask["pip"] else []
    run([sys.executable, "-m", "venv", *without, venv], end, "making the venv")
    python = os.path.join(venv, "bin", "python")
    pip = ["-m", "pip"]
    if ask["pip"]:
        pip = [os.path.join(ask["root"], "wheels", *ask["pip"], "pip")]
    lock = os.path.join(beside, "engine.lock")
    with open(lock, "w", encoding="utf-8") as file:
        file.write(ask["lock"])
    source = []
    if not ask["index"]:
        links = os.path.join(beside, "links")
        os.mkdir(links)
        for sha256, name in ask["wheels"]:
            os.symlink(os.path.join(ask["root"], "wheels", sha256, name), os.path.join(links, name))
        source = ["--no-index", "--find-links", links]
    quiet = ["--disable-pip-version-check", "--no-input", "--quiet"]
    install = [python, *pip, "install", *quiet, "--only-binary", ":all:", *source, "-r", lock]
    run(install, end, "installing what engines need")
    run([python, *pip, "check", "--disable-pip-version-check"], end, "checking what was installed")
    made = {"wheels": [sha256 for sha256, _ in ask["wheels"]] + ([ask["pip"][0]] if ask["pip"] else [])}
    with open(os.path.join(venv, "wheels.json"), "w", encoding="utf-8") as file:
        json.dump(made, file)


def run(argv: list[str], end: float, doing: str) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET")}
    try:
        done = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=max(1.0, end - time.monotonic()),
        )
    except subprocess.TimeoutExpired:
        raise Problem(f"{doing} did not end in time") from None
    if done.returncode != 0:
        said = done.stdout.decode("utf-8", "replace").strip().splitlines()
        raise Problem("\n".join([f"{doing} failed with exit code {done.returncode}", *said[-15:]]))


def relocate(venv: str, target: str) -> None:
    """Scripts name their interpreter by its path: let it be the one they will have."""
    old, new = os.fsencode(venv), os.fsencode(target)
    folder = os.path.join(venv, "bin")
    for path in [os.path.join(venv, "pyvenv.cfg"), *(os.path.join(folder, n) for n in os.listdir(folder))]:
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            data = file.read()
        if old in data and b"\0" not in data:
            with open(path, "wb") as file:
                file.write(data.replace(old, new))


def main(verb: str, text: str) -> None:
    ask = json.loads(text)
    try:
        print(json.dumps({"venv": build}[verb](ask)))
    except Problem as problem:
        print(problem, file=sys.stderr)
        sys.exit(3)
    except OSError as error:
        # What fails on an open file (a full disk) names none.
        print(f"{error.filename or ask['root']}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
