"""What tells one host from its sisters: the upper layer of its overlay."""

from __future__ import annotations

import os
import shutil

from tests.hosts.lab.names import MAX_HOSTS, Names
from tests.hosts.lab.shell import sh

USERS = {"root": ("root", 0), "ops": ("home/ops", 1000), "dev": ("home/dev", 1001)}


def fresh(names: Names, host: str) -> None:
    """An empty disk over the image, with a name, a machine id, a host key and the set's login key."""
    folder = names.disk(host)
    shutil.rmtree(folder, ignore_errors=True)
    upper = folder / "upper"
    for below in ("upper/etc/ssh", "work", "merged"):
        (folder / below).mkdir(parents=True)
    (upper / "etc/hostname").write_text(f"{host}\n")
    (upper / "etc/hosts").write_text(_hosts_file(names))
    (upper / "etc/machine-id").write_text(os.urandom(16).hex() + "\n")
    make_key(upper / "etc/ssh/ssh_host_ed25519_key", f"root@{host}")
    public = (names.dir / "id_ed25519.pub").read_text()
    for home, uid in USERS.values():
        allowed = upper / home / ".ssh" / "authorized_keys"
        allowed.parent.mkdir(parents=True, mode=0o700)
        allowed.write_text(public)
        allowed.chmod(0o600)
        for path in (upper / home, allowed.parent, allowed):
            os.chown(path, uid, uid)
    # Others may pass through: services run a Python and read a model that are bound in below /root.
    (upper / "root").chmod(0o711)


def make_key(path: os.PathLike[str], comment: str, passphrase: str = "") -> None:
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", comment, "-f", path)


def write_known_hosts(names: Names, hosts: list[str]) -> None:
    """For strict checking, and an ssh_config for people who look around."""
    known, config = "", ""
    for host in hosts:
        public = names.disk(host) / "upper/etc/ssh/ssh_host_ed25519_key.pub"
        key = " ".join(public.read_text().split()[:2])
        known += f"{host},{names.address(host)} {key}\n"
        config += f"Host {host} {names.address(host)}\n  HostName {names.address(host)}\n"
    config += f"""Host *
  User root
  IdentityFile {names.dir}/id_ed25519
  IdentitiesOnly yes
  UserKnownHostsFile {names.dir}/known_hosts
  StrictHostKeyChecking yes
  LogLevel ERROR
"""
    (names.dir / "known_hosts").write_text(known)
    (names.dir / "ssh_config").write_text(config)


def _hosts_file(names: Names) -> str:
    """gloo needs a host's own name on its eth0 address, so there is no 127.0.1.1."""
    peers = ["ctl", *(f"h{number}" for number in range(1, MAX_HOSTS + 1))]
    lines = [f"{names.address(peer)} {peer}\n" for peer in peers]
    return "127.0.0.1 localhost\n::1 localhost ip6-localhost\n" + "".join(lines)
