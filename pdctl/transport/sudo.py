"""Root on this machine for an operator who is somebody else."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile

from pdctl.errors import ConfigError
from pdctl.transport.far.calls import Calls
from pdctl.transport.far.start import OPTIONS, NotStarted, arguments, code, source, start

REFUSED_HINT = 'Give the user NOPASSWD in sudoers, log in as root, or use scope = "user".'
_START = 15.0


def begin(host: str) -> Calls:
    """The far program, started by `sudo -n`. ConfigError `sudo_refused` with what sudo said."""
    if not shutil.which("sudo"):
        raise ConfigError("sudo_refused", f"{host} has no sudo, and you are not root there.", REFUSED_HINT)
    words = arguments()
    ours, theirs = socket.socketpair()
    argv = ["sudo", "-n", sys.executable, *OPTIONS, code(len(source())), *words]
    with theirs, tempfile.TemporaryFile() as err:
        subprocess.Popen(
            argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=err, start_new_session=True
        )
        theirs.close()
        try:
            return start(ours, words[0], _START, ours.close)
        except (NotStarted, OSError) as error:
            ours.close()
            err.seek(0)
            lines = err.read().decode("utf-8", "replace").splitlines() or [str(error) or "it ended"]
            message = f"{host} does not let you become root: {lines[-1]}."
            raise ConfigError("sudo_refused", message, REFUSED_HINT, details=lines) from None
