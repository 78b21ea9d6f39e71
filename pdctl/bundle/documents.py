"""The documents of a bundle: path inside it -> text. A folder and a .tar.gz of one are the same thing."""

from __future__ import annotations

import io
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from pdctl.bundle.text import UnreadError, read
from pdctl.errors import ConfigError

FILE_MAX = 32 << 20  # bytes of one document that are read: its end, which is the newest part of a log
TOTAL_MAX = 512 << 20
COUNT_MAX = 5000


@dataclass(frozen=True)
class Documents:
    """`texts` is path -> text; of the paths in `cut` only the end was read, and those in `unread` could not
    be, for the reason told; `name` says where it is from.
    """

    name: str
    texts: Mapping[str, str]
    cut: frozenset[str] = field(default_factory=frozenset)
    unread: Mapping[str, str] = field(default_factory=dict)

    def under(self, folder: str) -> dict[str, str]:
        """Documents in `folder`, by their path below it."""
        start = folder.rstrip("/") + "/"
        return {path[len(start) :]: text for path, text in self.texts.items() if path.startswith(start)}


def load(path: Path) -> Documents:
    """A folder or a tar archive. ConfigError when it is neither or holds nothing."""
    if path.is_dir():
        found = _collect(str(path), _from_folder(path))
    elif path.is_file() and _is_tar(path):
        found = _collect(str(path), _from_tar(path))
    elif path.exists():
        raise ConfigError(
            "bad_bundle",
            f"{path} is no bundle.",
            "A bundle is a folder, or a .tar.gz of one (docs/bundle.md).",
        )
    else:
        raise ConfigError("no_bundle", f"There is no bundle at {path}.")
    if not found.texts:
        raise ConfigError(
            "empty_bundle",
            f"{path} holds no documents.",
            "docs/bundle.md says what can be in it.",
            details=[f"{name}: {why}" for name, why in found.unread.items()],
        )
    return found


def _collect(name: str, entries: Iterator[tuple[str, IO[bytes]]]) -> Documents:
    texts: dict[str, str] = {}
    unread: dict[str, str] = {}
    cut: set[str] = set()
    total = 0
    for path, file in entries:
        try:
            texts[path], short = read(file, path, FILE_MAX)
        except UnreadError as why:
            unread[path] = str(why)
            continue
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise _short(name, error) from None
        total += len(texts[path])
        if total > TOTAL_MAX or len(texts) >= COUNT_MAX:
            raise ConfigError(
                "big_bundle", f"{name} is too big to be a bundle: more than 512 MiB or 5000 files."
            )
        if short:
            cut.add(path)
    return Documents(name, _rooted(texts), frozenset(cut), unread)


def _rooted(texts: dict[str, str]) -> dict[str, str]:
    """Without a single folder around everything, as archives have it; hosts/ alone is no such folder."""
    tops = {PurePosixPath(path).parts[0] for path in texts}
    whole = len(tops) == 1 and all("/" in path for path in texts)
    top = next(iter(tops), "")
    inside = any(path.split("/", 1)[1] in ("manifest.json", "bundle.toml") for path in texts if "/" in path)
    return (
        {path.split("/", 1)[1]: text for path, text in texts.items()} if whole and top and inside else texts
    )


def _hidden(path: PurePosixPath) -> bool:
    """What a version control, a desktop or pdctl itself keeps beside the documents is no evidence."""
    return any(part.startswith(".") for part in path.parts)


def _from_folder(root: Path) -> Iterator[tuple[str, IO[bytes]]]:
    for path in sorted(root.rglob("*")):
        name = PurePosixPath(path.relative_to(root).as_posix())
        if path.is_file() and not path.is_symlink() and not _hidden(name):
            try:
                with path.open("rb") as file:
                    yield str(name), file
            except OSError as error:
                raise ConfigError("unreadable", f"{path} cannot be read: {error.strerror}.") from None


def _is_tar(path: Path) -> bool:
    """Whether it begins as one; a compressed file that ends in its first block is none."""
    try:
        return tarfile.is_tarfile(path)
    except EOFError:
        return False


def _from_tar(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if not member.isfile() or name.is_absolute() or _hidden(name):
                    continue
                file = archive.extractfile(member)
                if file is not None:
                    yield str(name), file
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise _short(str(path), error) from None


def _short(name: str, error: Exception) -> ConfigError:
    return ConfigError(
        "bad_bundle",
        f"{name} cannot be read to its end: {error}.",
        "Copy it once more; it seems to be cut off.",
    )


def save(documents: Mapping[str, str], path: Path, at: float) -> int:
    """Write a .tar.gz, whole or not at all; the bytes written. OSError as usual."""
    packed = io.BytesIO()
    top = path.name.split(".")[0] or "bundle"
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in sorted(documents):
            data = documents[name].encode()
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mtime, info.mode = len(data), int(at), 0o600
            archive.addfile(info, io.BytesIO(data))
    near = path.with_name(path.name + ".part")
    near.unlink(missing_ok=True)
    with open(near, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(packed.getvalue())
    near.replace(path)
    return len(packed.getvalue())
