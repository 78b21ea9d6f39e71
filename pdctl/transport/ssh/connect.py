"""Opening a connection: the way there, the host's key, the login. Every failure has its own code."""

from __future__ import annotations

import logging
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import paramiko

from pdctl.errors import UnreachableError
from pdctl.transport.far.calls import SILENCE
from pdctl.transport.ssh import known
from pdctl.transport.ssh.config import Target
from pdctl.transport.ssh.keys import Tried, candidates

# Without a handler the library's own messages would appear between the lines that pdctl prints.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_KEEPALIVE = 5
# Waits grow by about so much; with the longest the next try is the last.
_DROPPED_WAIT, _DROPPED_MOST = 0.2, 1.5

Way: TypeAlias = socket.socket | paramiko.Channel


class Connection:
    """An authenticated connection and the jumps that it goes through."""

    def __init__(self, transport: paramiko.Transport, jump: Connection | None) -> None:
        self.transport = transport
        self._jump = jump

    @property
    def alive(self) -> bool:
        return self.transport.is_active()

    def close(self) -> None:
        """From the near end on: the far one would be told of its own end, and telling may hang."""
        if self._jump:
            self._jump.close()
        self.transport.close()


def connect(target: Target, host: str, deadline: float) -> Connection:
    """UnreachableError with the reason. `deadline` seconds bound everything but a person's answers."""
    jump = None
    if target.jump and not target.proxy_command:
        jump = connect(target.jump, f"{host}, at its jump host {target.jump.alias}", deadline)
    end = time.monotonic() + min(target.connect_timeout, deadline)
    wait = 0.0
    try:
        while True:
            try:
                return Connection(_login(target, host, jump, end), jump)
            except _Dropped as dropped:
                # sshd drops some of many that start at once (MaxStartups): later it may not.
                wait += random.uniform(0.5, 1.5) * _DROPPED_WAIT
                if wait > _DROPPED_MOST or time.monotonic() + wait > end:
                    raise _hung_up(target, host, str(dropped), time.monotonic() >= end) from None
            time.sleep(wait)
    except BaseException:
        if jump:
            jump.close()
        raise


def _hung_up(target: Target, host: str, said: str, late: bool) -> UnreachableError:
    if late:
        message = f"{host} ({target}) took the connection but did not greet in time."
        return UnreachableError("ssh_timeout", message, "Does the host hang? Is it sshd that listens there?")
    message = f"{host} ({target}) closed the connection before the login: {said}."
    hint = "Is it sshd that listens there, and does it let this machine in (MaxStartups, sshd's log)?"
    return UnreachableError(
        "ssh_dropped", message, "Does its ProxyCommand work?" if target.proxy_command else hint
    )


class _Dropped(Exception):
    """The server hung up before it said whether we may log in."""


def _login(target: Target, host: str, jump: Connection | None, end: float) -> paramiko.Transport:
    way = _way(target, host, jump, _left(end))
    try:
        transport = paramiko.Transport(way)
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = _left(end)
        _prefer_known_kind(transport, target)
    except BaseException:
        way.close()
        raise
    try:
        _handshake(transport, target, host, _left(end))
        key = transport.get_remote_server_key()
        known.check(target, key.get_name(), key.asbytes(), host)
        _authenticate(transport, target, host)
        transport.set_keepalive(_KEEPALIVE)
    except BaseException:
        transport.close()
        raise
    return transport


def _left(end: float) -> float:
    return max(0.1, end - time.monotonic())


def _way(target: Target, host: str, jump: Connection | None, timeout: float) -> Way:
    with _spoken(target, host):
        if target.proxy_command:
            return _through_command(target.proxy_command)
        if jump:
            return _through(jump, target, host, timeout)
        plain = socket.create_connection((target.address, target.port), timeout)
        plain.settimeout(None)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENCE * 1000))
        return plain


def _through(jump: Connection, target: Target, host: str, timeout: float) -> paramiko.Channel:
    where = (target.address, target.port)
    try:
        return jump.transport.open_channel("direct-tcpip", where, ("127.0.0.1", 0), timeout=timeout)
    except paramiko.SSHException as error:
        message = f"{host} ({target}) cannot be reached through its jump host: {error}."
        raise UnreachableError("ssh_jump", message, "Does the jump host reach that address?") from None


def _through_command(command: str) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        end = theirs.fileno()
        subprocess.Popen(["/bin/sh", "-c", f"exec {command}"], stdin=end, stdout=end, start_new_session=True)
    return ours


@contextmanager
def _spoken(target: Target, host: str) -> Iterator[None]:
    where = f"{host} ({target})"
    try:
        yield
    except socket.gaierror as error:
        message = f"{where}: the name {target.address} cannot be resolved: {error.strerror}."
        hint = "Is it right in the fleet file, or in ~/.ssh/config?"
        raise UnreachableError("unknown_name", message, hint) from None
    except ConnectionRefusedError:
        message = f"{where} refuses connections on port {target.port}."
        raise UnreachableError("ssh_refused", message, "Is sshd running there, and on that port?") from None
    except TimeoutError:
        message = f"{where} did not answer in time."
        raise UnreachableError("ssh_timeout", message, "Is the host up, and the way to it open?") from None
    except OSError as error:
        message = f"{where} cannot be reached: {error.strerror or error}."
        raise UnreachableError("ssh_unreachable", message, "Is the address right, and routed?") from None


def _prefer_known_kind(transport: paramiko.Transport, target: Target) -> None:
    """Ask for the kind of key that known_hosts has, or a host with several kinds would look unknown."""
    options = transport.get_security_options()
    kinds = {entry.kind for entry in known.entries(target) if not entry.revoked}
    if "ssh-rsa" in kinds:
        kinds |= {"rsa-sha2-512", "rsa-sha2-256"}
    options.key_types = sorted(options.key_types, key=lambda kind: kind not in kinds)


def _handshake(transport: paramiko.Transport, target: Target, host: str, timeout: float) -> None:
    try:
        transport.start_client(timeout=timeout)
        # A handshake that takes too long is not an error to the library; without a key there was none.
        transport.get_remote_server_key()
    except (EOFError, ConnectionError) as error:
        raise _Dropped(str(error) or "no greeting came") from None
    except paramiko.SSHException as error:
        if "banner" in str(error) and not transport.is_active():
            raise _Dropped("no SSH greeting came") from None
        if "No existing session" in str(error):
            raise _hung_up(target, host, "", late=True) from None
        message = f"{host} ({target}): no common way to speak: {error}."
        raise UnreachableError("ssh_handshake", message) from None


def _authenticate(transport: paramiko.Transport, target: Target, host: str) -> None:
    tried = Tried()
    said = ""
    try:
        for key in candidates(target, tried):
            try:
                if not (more := transport.auth_publickey(target.user, key)):
                    return
                said = f"it also wants {', '.join(more)}"
                break
            except paramiko.BadAuthenticationType as error:
                said = f"it takes {', '.join(error.allowed_types)} only"
                break
            except paramiko.AuthenticationException as error:
                if not transport.is_active():
                    said = str(error)
                    break
    except (EOFError, ConnectionError, paramiko.SSHException) as error:
        said = f"it hung up: {error}"
    # After more than one key it may be the server's limit of tries, and the next time would be the same.
    if tried.offered == 1 and not transport.is_active():
        raise _Dropped("no answer to the key came")
    raise _refused(target, host, tried, said)


def _refused(target: Target, host: str, tried: Tried, said: str) -> UnreachableError:
    if tried.locked and len(tried.notes) == len(tried.locked):
        return UnreachableError(
            "key_locked",
            f"{host} ({target}): the key {tried.locked[0]} is encrypted and there is nobody to ask.",
            f"Run `ssh-add {tried.locked[0]}` first, or run pdctl in a terminal.",
            details=tried.notes,
        )
    if not tried.offered and not said:
        message = f"{host} ({target}): there is no key to log in with."
        hint = "Name one as hosts.NAME.identity_file, or ssh-add it."
        return UnreachableError("auth_failed", message, hint, details=[f"tried: {n}" for n in tried.notes])
    reason = f" ({said})" if said else ""
    return UnreachableError(
        "auth_failed",
        f"{host} ({target}) accepts none of {tried.offered} keys for the user {target.user}{reason}.",
        f"Does `ssh {target.alias}` work? hosts.NAME.user and identity_file say who logs in, and how.",
        details=[f"tried: {note}" for note in tried.notes],
    )
