"""What the hosts of a fleet file must say, beyond their types."""

from __future__ import annotations

import posixpath
import re

from pdctl.fleet.names import nearest
from pdctl.fleet.problems import Keys, TomlFile
from pdctl.fleet.schema import FleetFile, HostTable

# Folders that belong to the system: pdctl makes, modes and prunes folders below its own root.
_SYSTEM = re.compile(
    "/(bin|boot|dev|etc|home|lib|lib64|media|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|usr/local|var|var/lib)?"
)
_ADDRESS = re.compile(r"[A-Za-z0-9_.:%-]+")
_LOGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]*\$?")
_OWN = ("127.", "localhost", "::1", "0.0.0.0", "::")


def check_hosts(file: TomlFile, spec: FleetFile) -> None:
    for name, host in spec.hosts.items():
        _host(file, ("hosts", name), host)
    if spec.fleet.control is not None and spec.fleet.control not in spec.hosts:
        near = nearest(spec.fleet.control, spec.hosts)
        file.problem(("fleet", "control"), f"there is no such host. {near}")


def _host(file: TomlFile, keys: Keys, host: HostTable) -> None:
    if host.root is not None and (why := _root_problem(host.root)):
        file.problem((*keys, "root"), why)
    if not _ADDRESS.fullmatch(host.address):
        file.problem((*keys, "address"), "is neither a host name nor an IP address.")
    if host.transport == "local":
        for key in ("ssh", "user", "port", "identity_file"):
            if getattr(host, key) is not None:
                file.problem((*keys, key), 'is for transport = "ssh"; this host is local.')
        return
    _remote(file, keys, host)


def _remote(file: TomlFile, keys: Keys, host: HostTable) -> None:
    if "address" not in host.model_fields_set:
        file.problem((*keys, "address"), "is missing: where peers and routers reach this host.")
    elif host.address.startswith(_OWN[0]) or host.address in _OWN:
        file.problem(
            (*keys, "address"), f"is {host.address}; peers and routers need one that they can reach."
        )
    if host.ssh is not None and not _LOGIN.fullmatch(host.ssh) and not _ADDRESS.fullmatch(host.ssh):
        file.problem((*keys, "ssh"), "is neither a host name nor an alias; give user and port as keys.")
    elif host.ssh is not None and host.ssh.startswith("-"):
        file.problem((*keys, "ssh"), "starts with a dash; options belong into ~/.ssh/config.")
    if host.user is not None and not _LOGIN.fullmatch(host.user):
        file.problem((*keys, "user"), "is no login name.")
    if host.units == "process":
        file.problem((*keys, "units"), "process is for this machine; hosts over SSH run systemd.")
    if host.scope == "user" and host.root is None:
        file.problem((*keys, "root"), 'is needed with scope = "user": a folder that the user may write.')
    if host.runtime == "existing" and host.python is None:
        file.problem((*keys, "python"), 'is needed with runtime = "existing": the Python that runs engines.')
    if host.wheels is not None and host.runtime != "wheelhouse":
        file.problem((*keys, "wheels"), 'is for runtime = "wheelhouse".')


def _root_problem(root: str) -> str:
    if not root.startswith("/"):
        return f"{root} is no absolute path."
    plain = root.rstrip("/")
    if plain and posixpath.normpath(plain) != plain:
        return f"{root} must be a plain path, without . and .. in it."
    if _SYSTEM.fullmatch(plain or "/"):
        return f"{root} belongs to the system; name a folder below it that is pdctl's own."
    return ""
