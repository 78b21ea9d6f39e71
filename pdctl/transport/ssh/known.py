"""known_hosts: which key a host had, and what to say when it has another one."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from pdctl.errors import ConfigError, UnreachableError
from pdctl.transport.ssh import ask
from pdctl.transport.ssh.config import Target


@dataclass(frozen=True)
class Entry:
    """One line that names the host; `line` counts from 1."""

    file: str
    line: int
    kind: str
    key: bytes
    revoked: bool


def entries(target: Target) -> list[Entry]:
    return [entry for file in target.known_files for entry in _read(file, target.known_name)]


def fingerprint(key: bytes) -> str:
    """As ssh-keygen -l prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def check(target: Target, kind: str, key: bytes, host: str) -> None:
    """Returns when the key may be trusted: it is known, or a person at the terminal confirms it.

    UnreachableError `host_key_changed`, `host_key_revoked` or `host_key_unknown` otherwise.
    """
    found = entries(target)
    if any(entry.revoked and entry.key == key for entry in found):
        raise UnreachableError("host_key_revoked", f"The key of {host} ({target}) is marked @revoked.")
    valid = [entry for entry in found if not entry.revoked]
    if any(entry.key == key for entry in valid):
        return
    for entry in valid:
        if entry.kind == kind:
            raise _changed(target, entry, kind, key, host)
    if not ask.possible():
        raise _unknown(target, kind, key, host)
    question = (
        f"The authenticity of {host} ({target}) is not known yet.\n{kind} {fingerprint(key)}\nTrust it?"
    )
    if not ask.confirm(question):
        raise UnreachableError("host_key_unknown", f"The key of {host} ({target}) was not confirmed.")
    _append(target, kind, key)


def _changed(target: Target, entry: Entry, kind: str, key: bytes, host: str) -> UnreachableError:
    remove = f"ssh-keygen -f {shlex.quote(entry.file)} -R {shlex.quote(target.known_name)}"
    return UnreachableError(
        "host_key_changed",
        f"The host key of {host} ({target}) is not the one in {entry.file}:{entry.line}; "
        "another machine may be answering.",
        f"If the host was installed anew, remove that line with: {remove}",
        details=(
            f"expected: {kind} {fingerprint(entry.key)} ({entry.file}:{entry.line})",
            f"offered:  {kind} {fingerprint(key)}",
        ),
    )


def _unknown(target: Target, kind: str, key: bytes, host: str) -> UnreachableError:
    file = shlex.quote(target.known_files[0])
    return UnreachableError(
        "host_key_unknown",
        f"The host key of {host} ({target}) is not known: {kind} {fingerprint(key)}.",
        "Compare the fingerprint with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub there), "
        f"then add it: echo {shlex.quote(_line(target, kind, key))} >> {file}",
    )


def _line(target: Target, kind: str, key: bytes) -> str:
    return f"{target.known_name} {kind} {base64.b64encode(key).decode()}"


def _append(target: Target, kind: str, key: bytes) -> None:
    file = target.known_files[0]
    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(fd, "r+b") as known:
            before = known.read()
            start = "\n" if before and not before.endswith(b"\n") else ""
            known.write(f"{start}{_line(target, kind, key)}\n".encode())
    except OSError as error:
        raise ConfigError("cannot_write", f"{file} cannot be written: {error.strerror}.") from None


def _read(file: str, name: str) -> Iterator[Entry]:
    try:
        with open(file, encoding="utf-8", errors="replace") as text:
            lines = text.readlines()
    except OSError:
        return
    for number, line in enumerate(lines, 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        # A certificate authority vouches for host certificates, which paramiko does not ask for.
        if len(words) < 3 or words[0].startswith("#") or marker == "@cert-authority":
            continue
        if _names(words[0], name):
            try:
                key = base64.b64decode(words[2], validate=True)
            except ValueError:
                continue
            yield Entry(file, number, words[1], key, marker == "@revoked")


def _names(patterns: str, name: str) -> bool:
    """Whether the first field of a line means this host; `!` takes it out again."""
    if patterns.startswith("|1|"):
        return _hashed(patterns, name)
    matched = False
    for pattern in patterns.lower().split(","):
        negative, plain = pattern.startswith("!"), pattern.removeprefix("!")
        # Brackets are literal here, as in [host]:port, and a set of characters for fnmatch.
        if plain == name or fnmatch.fnmatchcase(name, plain.replace("[", "[[]")):
            if negative:
                return False
            matched = True
    return matched


def _hashed(field: str, name: str) -> bool:
    try:
        salt, want = (base64.b64decode(part) for part in field.split("|")[2:4])
    except ValueError:
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), "sha1").digest(), want)
