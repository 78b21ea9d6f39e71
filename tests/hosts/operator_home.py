"""The operator's side: a home folder with ssh files, and hosts as a fleet file describes them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pdctl.fleet.model import Host
from pdctl.fleet.schema import HostTable
from tests.hosts.lab.lab import Lab

MODELS = Path(".cache/pdctl/models")


def make_home(home: Path, lab: Lab) -> None:
    """~/.ssh with an alias, the login key and the host keys of every host; the real home's models.

    The alias of a host is its name and the default login is root. Nothing is found by accident: there is
    no default key in it.
    """
    ssh = home / ".ssh"
    ssh.mkdir(parents=True, mode=0o700)
    shutil.copy(lab.key, ssh / "lab_key")
    shutil.copy(lab.known_hosts, ssh / "known_hosts")
    lines = [
        f"Host {host.name}\n  HostName {host.address}\n  HostKeyAlias {host.name}\n" for host in lab.hosts
    ]
    lines.append(f"Host *\n  User root\n  IdentityFile {ssh}/lab_key\n  IdentitiesOnly yes\n")
    (ssh / "config").write_text("".join(lines))
    models = home / MODELS
    models.parent.mkdir(parents=True)
    models.symlink_to(Path(os.path.expanduser("~")) / MODELS)


CARRY = """
import os, socket, sys, threading
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def out():
    while d := s.recv(65536): os.write(1, d)
threading.Thread(target=out, daemon=True).start()
while d := os.read(0, 65536): s.sendall(d)
"""


def through_a_command(home: Path, *aliases: str) -> None:
    """From now on those hosts are reached through a process of this machine (ProxyCommand)."""
    carry, config = home / "carry.py", home / ".ssh" / "config"
    carry.write_text(CARRY)
    lines = [f"Host {alias}\n  ProxyCommand {sys.executable} {carry} %h %p\n" for alias in aliases]
    config.write_text("".join(lines) + config.read_text())


def fleet_host(name: str, address: str, **table: Any) -> Host:
    """As `hosts.NAME` of a fleet file with transport = "ssh"; `table` are further keys."""
    spec = HostTable(**{"transport": "ssh", "address": address, "ssh": name, **table})
    return Host(name, spec, table.get("root") or "/opt/pdctl/test")
