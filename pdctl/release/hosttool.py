"""Runs on a host through `python3 -`: what is there of a fleet, and releases made, switched and removed.

Python >= 3.9 and nothing else. pdctl appends the call, so that a question may be large and is never part of
a command line. Each verb takes one object and answers with one:

look      {root, dists}                                     everything a deploy decides by, see `look`
install   {root, manifest, python, base, files, seconds}    make a release of a tree, see `install`
activate  {root, release}                                   point `current` at a release atomically
prune     {root, oldest}                                    remove what nothing uses any more, see `prune`
records   {root}                                            every deployment kept here

Below ROOT: trees/ID (code), venvs/ID (what it needs), releases/ID (manifest.json, links to both), `current`,
wheels/SHA256/FILE, deployments/ID.json, env/, units/. A tree and a venv get their name once they are whole;
a release gets its own once its code has answered, so what is listed can be started.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zlib
from importlib import metadata
from typing import Any

Entry = dict[str, Any]


class Problem(Exception):
    """Something to tell the operator, without a traceback."""


def read_json(path: str) -> Entry | None:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def names(folder: str) -> list[str]:
    """Entries of a folder that are not half made."""
    return sorted(n for n in os.listdir(folder) if not n.startswith(".")) if os.path.isdir(folder) else []


def listing(root: str) -> Entry:
    """`releases` are whole and oldest first; a release whose tree or venv is gone does not count."""
    folder = os.path.join(root, "releases")
    whole = []
    for name in names(folder):
        manifest = read_json(os.path.join(folder, name, "manifest.json"))
        if manifest is None or not os.path.isdir(os.path.join(root, "trees", str(manifest.get("tree")))):
            continue
        if manifest.get("venv") and not venv_whole(root, str(manifest["venv"])):
            continue
        whole.append((os.stat(os.path.join(folder, name, "manifest.json")).st_mtime, name))
    current = os.path.join(root, "current")
    return {
        "releases": [name for _, name in sorted(whole)],
        "current": os.path.basename(os.readlink(current)) if os.path.islink(current) else None,
        "trees": names(os.path.join(root, "trees")),
        "venvs": [n for n in names(os.path.join(root, "venvs")) if venv_whole(root, n)],
        "wheels": [n for n in names(os.path.join(root, "wheels")) if names(os.path.join(root, "wheels", n))],
    }


def venv_whole(root: str, name: str) -> bool:
    """Also asks for the Python that it was made with, which an upgrade of the machine may have removed."""
    return os.path.exists(os.path.join(root, "venvs", name, "bin", "python"))


def changed(folder: str) -> dict[str, float]:
    """Unit -> when its file was changed last, also by putting another in its place."""
    return {n.rpartition(".")[0]: os.lstat(os.path.join(folder, n)).st_ctime for n in names(folder)}


def look(ask: Entry) -> Entry:
    """`env` are env files as text, `private` digests of the other files there (tokens), `units` unit files
    as text, `changed` when each of both was changed last, `newest` the last deployment recorded, `manifest`
    that of the current release, `supervised` whether a supervisor was ever installed below it."""
    root = ask["root"]
    found = listing(root)
    env, private = {}, {}
    folder = os.path.join(root, "env")
    for name in names(folder):
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        if name.endswith(".env"):
            env[name[:-4]] = data.decode("utf-8", "replace")
        else:
            private[name] = hashlib.sha256(data).hexdigest()
    units = {}
    for name in names(os.path.join(root, "units")):
        if name.endswith(".json"):
            with open(os.path.join(root, "units", name), encoding="utf-8", errors="replace") as file:
                units[name[:-5]] = file.read()
    kept = records(ask)["records"]
    manifest = os.path.join(root, "releases", str(found["current"]), "manifest.json")
    return {
        **found,
        "changed": {k: changed(os.path.join(root, k)) for k in ("env", "units")},
        "env": env,
        "private": private,
        "units": units,
        "newest": kept[-1] if kept else None,
        "manifest": read_json(manifest),
        "root": root_state(root),
        "supervised": os.path.isdir(os.path.join(root, "supervisor")),
        "python": python_facts(ask["dists"]),
    }


def root_state(root: str) -> str:
    """there, foreign (there, and not this user's to write), or what making it takes: writable, denied."""
    if os.path.isdir(root):
        return "there" if os.access(root, os.W_OK) else "foreign"
    above = os.path.dirname(root)
    while not os.path.exists(above):
        above = os.path.dirname(above)
    return "writable" if os.access(above, os.W_OK) else "denied"


def python_facts(dists: list[str]) -> Entry:
    def version(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    libc, number = platform.libc_ver()
    return {
        "python": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "machine": platform.machine(),
        "glibc": number if libc == "glibc" else "",
        "dists": {name: version(name) for name in dists},
    }


def records(ask: Entry) -> Entry:
    """Oldest first. A file that is torn is nobody's record."""
    folder = os.path.join(ask["root"], "deployments")
    found = [read_json(os.path.join(folder, n)) for n in names(folder) if n.endswith(".json")]
    return {"records": sorted((r for r in found if r is not None), key=lambda r: (r["serial"], r["id"]))}


def install(ask: Entry) -> Entry:
    """Make the tree where it is missing, ask its code for its version, then give the release its name.

    `files` (name -> content, packed) are those that tree `base` does not have alike; where `base` is not
    what it was said to be, nothing is done and `differs` names a file.
    """
    root, manifest = ask["root"], ask["manifest"]
    folder = os.path.join(root, "releases")
    sweep(folder)
    tree = os.path.join(root, "trees", manifest["tree"])
    if not os.path.isdir(tree):
        differs = make_tree(root, tree, manifest["files"], ask["base"], unpack(ask["files"]))
        if differs:
            return {"differs": differs}
    said = preflight(ask["python"], tree, ask["seconds"])
    temporary = tempfile.mkdtemp(prefix="." + manifest["id"] + ".", dir=folder)
    os.symlink(os.path.join("..", "..", "trees", manifest["tree"]), os.path.join(temporary, "tree"))
    if manifest.get("venv"):
        os.symlink(os.path.join("..", "..", "venvs", manifest["venv"]), os.path.join(temporary, "venv"))
    with open(os.path.join(temporary, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(dict(manifest, said=said), file, indent=1, sort_keys=True)
    os.chmod(temporary, 0o755)
    target = os.path.join(folder, manifest["id"])
    discard(target)
    # What is renamed into place must be on the disk: a name that survives a power cut vouches for all of it.
    os.sync()
    os.rename(temporary, target)
    return listing(root)


def unpack(packed: str) -> dict[str, bytes]:
    files = json.loads(zlib.decompress(base64.b64decode(packed)))
    return {name: text.encode("latin-1") for name, text in files.items()}


def make_tree(root: str, tree: str, digests: dict[str, str], base: str, files: dict[str, bytes]) -> str:
    """The name of a file that neither `files` nor `base` has as it should be, else "" and a tree."""
    folder = os.path.dirname(tree)
    sweep(folder)
    temporary = tempfile.mkdtemp(prefix="." + os.path.basename(tree) + ".", dir=folder)
    try:
        for name, digest in digests.items():
            data = files.get(name)
            if data is None:
                with open(os.path.join(root, "trees", base, name), "rb") as file:
                    data = file.read()
            if hashlib.sha256(data).hexdigest() != digest:
                return name
            path = os.path.join(temporary, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        os.chmod(temporary, 0o755)
        os.rename(temporary, tree)
    except FileNotFoundError as error:
        return str(error.filename)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return ""


def preflight(python: str, tree: str, seconds: float) -> Entry:
    """What the release's own code says of itself, started as its engines will be."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH")}
    argv = [python, "-m", "engine", "version"]
    try:
        done = subprocess.run(
            argv, cwd=tree, env=dict(env, PYTHONPATH=tree), capture_output=True, timeout=seconds
        )
    except OSError as error:
        raise Problem(f"{python} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Problem(f"`{' '.join(argv)}` did not answer in {seconds:g} s") from None
    said = (done.stdout.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
    try:
        answer: Entry = json.loads(said)
    except ValueError:
        answer = {}
    if not isinstance(answer, dict) or done.returncode != 0 or "engine" not in answer:
        broken = answer.get("broken") if isinstance(answer, dict) else None
        lines = [f"{n}: {why}" for n, why in broken.items()] if broken else []
        lines = lines or done.stderr.decode("utf-8", "replace").splitlines()[-12:]
        raise Problem("\n".join([f"`{' '.join(argv)}` ended with exit code {done.returncode}", *lines]))
    return answer


def activate(ask: Entry) -> Entry:
    root = ask["root"]
    temporary = os.path.join(root, ".current")
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(os.path.join("releases", ask["release"]), temporary)
    os.replace(temporary, os.path.join(root, "current"))
    return listing(root)


def discard(path: str) -> None:
    """Remove a folder so that no moment shows half of it under its name."""
    if os.path.isdir(path):
        gone = tempfile.mkdtemp(prefix=".gone.", dir=os.path.dirname(path))
        os.rename(path, os.path.join(gone, "it"))
        shutil.rmtree(gone, ignore_errors=True)


def sweep(folder: str) -> None:
    """Remove what a run that was killed had begun; one run at a time works on a fleet."""
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        if name.startswith("."):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def needed(kept: list[Entry], oldest: Any) -> list[Entry]:
    """Records, oldest first, that deployments from `oldest` (serial, id) on are made of: those since, and the
    one that the host had by then."""
    older = [r for r in kept if [r["serial"], r["id"]] <= list(oldest)]
    return kept[max(0, len(older) - 1) :]


def prune(ask: Entry) -> Entry:
    """Keep the records that deployments from `oldest` on need; then every release that one of them, `current`
    or a unit names, with its tree, venv and wheels, and every tree or venv that a process runs from."""
    root = ask["root"]
    there = records(ask)["records"]
    kept = needed(there, ask["oldest"])
    for record in there[: len(there) - len(kept)]:
        os.unlink(os.path.join(root, "deployments", record["id"] + ".json"))
    state = listing(root)
    used = {unit["release"] for record in kept for unit in record["units"].values()} | {state["current"]}
    used |= {unit_release(os.path.join(root, "units", name)) for name in names(os.path.join(root, "units"))}
    manifests = {n: read_json(os.path.join(root, "releases", n, "manifest.json")) for n in state["releases"]}
    alive = [m for n, m in manifests.items() if n in used and m]
    running = running_from(root)
    stay = {
        "releases": {m["id"] for m in alive},
        "trees": {m["tree"] for m in alive} | running,
        "venvs": {m.get("venv") for m in alive} | running,
    }
    for kind, wanted in stay.items():
        sweep(os.path.join(root, kind))
        for name in names(os.path.join(root, kind)):
            if name not in wanted:
                discard(os.path.join(root, kind, name))
    venvs = [read_json(os.path.join(root, "venvs", n, "wheels.json")) for n in names(root + "/venvs")]
    wheels = {sha for made in venvs if made for sha in made["wheels"]}
    for name in names(os.path.join(root, "wheels")):
        if name not in wheels:
            discard(os.path.join(root, "wheels", name))
    return listing(root)


def unit_release(path: str) -> str | None:
    found = read_json(path)
    return str((found.get("env") or {}).get("PDCTL_RELEASE")) if found else None


def running_from(root: str) -> set[str]:
    """Ids of trees and venvs that live processes were started from."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            cwd = os.readlink(f"/proc/{pid}/cwd")
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                program = file.read().partition(b"\0")[0].decode("utf-8", "replace")
        except OSError:
            continue
        for path in (cwd, program):
            if path.startswith(root + "/"):
                found.add(path[len(root) + 1 :].partition("/")[2].partition("/")[0])
    return found


VERBS = {"look": look, "install": install, "activate": activate, "prune": prune, "records": records}


def main(verb: str, text: str) -> None:
    ask = json.loads(text)
    try:
        print(json.dumps(VERBS[verb](ask)))
    except Problem as problem:
        print(problem, file=sys.stderr)
        sys.exit(3)
    except OSError as error:
        # What fails on an open file (a full disk) names none.
        print(f"{error.filename or ask['root']}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
