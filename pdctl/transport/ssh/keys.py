"""Which private keys a login is tried with, and in which order."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import paramiko

from pdctl.transport.ssh import ask
from pdctl.transport.ssh.config import Target, no_key

DEFAULTS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_TRIES = 3


@dataclass
class Tried:
    """What an authentication error tells: each key that was offered (so many), and each that could not be."""

    notes: list[str] = field(default_factory=list)
    offered: int = 0
    locked: list[str] = field(default_factory=list)


class _Unlocked:
    """Keys by file for the life of the process: a passphrase is asked for once, whatever hosts need it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, paramiko.PKey | None] = {}

    def get(self, file: str) -> paramiko.PKey | None:
        """None when nobody can be asked or three answers were wrong."""
        with self._lock:
            if file not in self._keys and ask.possible():
                self._keys[file] = self._ask(file)
            return self._keys.get(file)

    def _ask(self, file: str) -> paramiko.PKey | None:
        for _ in range(_TRIES):
            try:
                return paramiko.PKey.from_path(file, ask.passphrase(file).encode())
            except (ValueError, paramiko.SSHException):
                continue
        return None


_unlocked = _Unlocked()


def candidates(target: Target, tried: Tried) -> Iterator[paramiko.PKey]:
    """Named files first, then the agent's other keys, then default files, and last what must be asked for.

    A file whose key the agent holds is used through the agent, so its passphrase is not needed.
    """
    holder = paramiko.Agent()
    try:
        for key in _in_order(target, {key.asbytes(): key for key in holder.get_keys()}, tried):
            tried.offered += 1
            yield key
    finally:
        holder.close()


def _in_order(target: Target, agent: dict[bytes, paramiko.AgentKey], tried: Tried) -> Iterator[paramiko.PKey]:
    locked: list[str] = []
    for file in target.identities:
        yield from _from_file(file, agent, tried, locked, named=True)
    if not target.identities_only:
        for key in list(agent.values()):
            tried.notes.append(f"agent key {key.comment or key.get_name()}")
            yield key
    if not target.identities:
        for file in DEFAULTS:
            yield from _from_file(os.path.expanduser(file), agent, tried, locked, named=False)
    for file in locked:
        key = _unlocked.get(file)
        if key is None:
            tried.locked.append(file)
            tried.notes.append(f"{file}: encrypted, and its passphrase was not given")
        else:
            tried.notes.append(file)
            yield key


def _from_file(
    file: str, agent: dict[bytes, paramiko.AgentKey], tried: Tried, locked: list[str], named: bool
) -> Iterator[paramiko.PKey]:
    held = agent.pop(_public(file), None)
    if held is not None:
        tried.notes.append(f"{file}, through the agent")
        yield held
        return
    try:
        key = paramiko.PKey.from_path(file)
    except FileNotFoundError:
        if named:
            tried.notes.append(f"{file}: there is no such file")
    except (paramiko.PasswordRequiredException, TypeError):
        # cryptography says TypeError("Password was not given…") for an encrypted key.
        locked.append(file)
    except Exception:  # noqa: BLE001 - what is no key ends in one of many, and none says so to a person
        wrong = no_key(file) or "is damaged, or of a kind that works through an agent only"
        tried.notes.append(f"{file} {wrong}")
    else:
        tried.notes.append(file)
        yield key


def _public(file: str) -> bytes:
    """The public half beside a private key; empty when there is none."""
    try:
        with open(f"{file}.pub", encoding="utf-8") as public:
            return base64.b64decode(public.read().split()[1])
    except (OSError, ValueError, IndexError):
        return b""
