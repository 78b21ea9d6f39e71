"""The far program at the other end of an SSH connection, as the login user or through sudo."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import paramiko

from pdctl.errors import ConfigError, UnreachableError
from pdctl.transport.far.calls import Calls
from pdctl.transport.far.start import OPTIONS, NotStarted, arguments, code, source, start
from pdctl.transport.ssh.connect import Connection
from pdctl.transport.sudo import REFUSED_HINT


def begin(connection: Connection, where: str, pythons: Sequence[str], root: bool, deadline: float) -> Calls:
    """What a login shell prints before it is skipped.

    ConfigError `no_python`, `old_python` and `sudo_refused`; UnreachableError `ssh_shell` when something
    else runs there, `ssh_timeout` when nothing does.
    """
    words = arguments()
    channel = None
    try:
        channel = connection.transport.open_session(timeout=deadline)
        channel.settimeout(deadline)
        channel.exec_command(command(pythons, words, root))
        return start(channel, words[0], deadline, connection.close)
    except NotStarted as ended:
        if not connection.alive:
            raise _lost(where, "") from None
        raise _explained(where, ended.said, _stderr(channel), root) from None
    except paramiko.ChannelException as error:
        message = f"{where} opens no session: {error}."
        raise UnreachableError("ssh_shell", message, "Is MaxSessions in its sshd_config below 2?") from None
    except TimeoutError:
        message = f"{where} did not start a program in {deadline:.0f} s."
        raise UnreachableError("ssh_timeout", message, "Does its login shell hang (~/.bashrc)?") from None
    except (EOFError, OSError, paramiko.SSHException) as error:
        raise _lost(where, str(error)) from None


def command(pythons: Sequence[str], words: Sequence[str], root: bool) -> str:
    """One line that every login shell reads alike: no newline, no backslash, no ! and one level of quotes.

    Nothing of what will run is in it, so no secret is ever on a command line of the host.
    """
    options = " ".join(OPTIONS)
    inner = (
        'n=$1; s=$2; shift 2; for p in "$@"; do command -v "$p" >/dev/null 2>&1 && '
        f'exec "$p" {options} "{code(len(source()))}" "$n" "$s"; done; echo pdctl: no python >&2; exit 127'
    )
    given = " ".join(shlex.quote(word) for word in (*words, *pythons))
    return f"exec {'sudo -n ' if root else ''}/bin/sh -c '{inner}' sh {given}"


def _lost(where: str, why: str) -> UnreachableError:
    message = f"The connection to {where} was lost right after the login: {why or 'it broke off'}."
    return UnreachableError("connection_lost", message)


def _stderr(channel: paramiko.Channel | None) -> str:
    said = b""
    while channel and (data := channel.recv_stderr(1 << 16)):
        said += data
    return said.decode("utf-8", "replace")


def _explained(where: str, out: bytes, err: str, root: bool) -> ConfigError | UnreachableError:
    said = (*out.decode("utf-8", "replace").splitlines(), *err.splitlines())
    lines = [line for line in said if line.strip()]
    if "pdctl: no python" in err:
        message = f"{where} has no Python 3."
        return ConfigError("no_python", message, "Install python3 there, or name one as hosts.NAME.python.")
    if any(line.startswith("SyntaxError") for line in lines):
        message = f"{where} has a Python older than 3.9."
        return ConfigError("old_python", message, "Name a newer one as hosts.NAME.python.", details=lines)
    if root and any("sudo" in line for line in lines):
        message = f"{where} does not let this user become root: {lines[-1]}."
        return ConfigError("sudo_refused", message, REFUSED_HINT, details=lines)
    message = f"{where} logged in but did not run pdctl's program."
    hint = "Does the user have a login shell, and does its start-up file end early?"
    return UnreachableError("ssh_shell", message, hint, details=lines[-20:])
