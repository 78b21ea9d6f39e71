"""Host tool: whether TCP ports can be listened on, and who holds them when they cannot."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import struct
from typing import Any

from pdctl.facts.probes.proc import command_of, denied, parents, pids, process_table, service_of

ESTABLISHED, LISTEN = "01", "0A"


def family_of(address: str) -> int:
    return int(socket.AF_INET6 if ":" in address else socket.AF_INET)


def bind_error(address: str, port: int) -> str:
    """Why nothing could listen on `address:port` now; "" when it could."""
    with socket.socket(family_of(address), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except socket.gaierror as error:
            return f"{address} has no address here: {error.strerror}"
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return "taken"
            if error.errno == errno.EADDRNOTAVAIL:
                return "no interface of this host has that address"
            return os.strerror(error.errno or 0)
    return ""


def _address(text: str) -> str:
    """The kernel's hex, which is little-endian by words of 32 bits."""
    words = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    raw = struct.pack(f"={len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def _sockets(state: str) -> list[list[str]]:
    """Rows of the kernel's TCP tables in that state."""
    rows: list[list[str]] = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows += [row for row in map(str.split, file.readlines()[1:]) if row[3] == state]
        except OSError:
            continue  # without IPv6 there is no such table
    return rows


def listeners(wanted: set[int]) -> list[dict[str, Any]]:
    """Listening sockets on these ports: {port, address, uid, inode}."""
    found = []
    for row in _sockets(LISTEN):
        address, _, port = row[1].rpartition(":")
        if int(port, 16) in wanted:
            entry = {"port": int(port, 16), "address": _address(address), "uid": int(row[7])}
            found.append({**entry, "inode": row[9]})
    return found


def connected(address: str, port: int) -> bool:
    """Whether some process of this host has a connection to `address:port` now."""
    for row in _sockets(ESTABLISHED):
        there, _, number = row[2].rpartition(":")
        if int(number, 16) == port and _address(there).replace("::ffff:", "") == address:
            return True
    return False


def _owners(inodes: set[str]) -> dict[str, int]:
    """Socket inode -> the lowest pid that has it open, as far as it can be seen."""
    found: dict[str, int] = {}
    hidden = []
    for pid in sorted(pids()):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except PermissionError:
            hidden.append(f"/proc/{pid}/fd")
            continue
        except OSError:
            continue  # it ended, or closed that descriptor, while it was looked at
        for link in links:
            if link.startswith("socket:[") and link[8:-1] in inodes:
                found.setdefault(link[8:-1], pid)
    if inodes - found.keys():
        denied.extend(hidden)
    return found


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def probe_ports(wanted: list[list[Any]]) -> list[dict[str, Any]]:
    """For each [address, port]: {address, port, error ("" when free), holders}.

    A holder is {address, user, pid (None when it cannot be seen), parents, command, service}.
    """
    heard = listeners({port for _, port in wanted})
    owners = _owners({entry["inode"] for entry in heard}) if heard else {}
    table = process_table() if heard else {}
    found = []
    for address, port in wanted:
        holders = []
        for entry in heard:
            if entry["port"] != port:
                continue
            pid = owners.get(entry["inode"])
            holder = {"address": entry["address"], "user": _user(entry["uid"]), "pid": pid}
            if pid is not None:
                holder["parents"] = list(parents(pid, table))
                holder["command"] = command_of(pid, 6)
                holder["service"] = service_of(pid)
            holders.append(holder)
        error = bind_error(address, port)
        found.append({"address": address, "port": port, "error": error, "holders": holders})
    return found


def probe_spare(address: str, count: int) -> list[int]:
    """Ports of `address` that nobody listens on now, TCP and UDP."""
    spare: list[int] = []
    for _ in range(20 * count):
        with socket.socket(family_of(address), socket.SOCK_STREAM) as tcp:
            tcp.bind((address, 0))
            port = int(tcp.getsockname()[1])
            with socket.socket(family_of(address), socket.SOCK_DGRAM) as udp:
                try:
                    udp.bind((address, port))
                except OSError:
                    continue
        if port not in spare:
            spare.append(port)
        if len(spare) == count:
            break
    return spare
