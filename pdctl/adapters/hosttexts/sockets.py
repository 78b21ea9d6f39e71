"""Listening sockets as ss and netstat print them, and a host's addresses as ip prints them; pure."""

from __future__ import annotations

import re

from pdctl.adapters.traces import Interface, Socket

_SS = re.compile(r"^(?:tcp\s+)?LISTEN\s+\d+\s+\d+\s+(?P<address>\S+):(?P<port>\d+)\s+\S+(?P<rest>.*)$")
_USERS = re.compile(r'\("(?P<name>[^"]+)",pid=(?P<pid>\d+)')
_NETSTAT = re.compile(
    r"^tcp6?\s+\d+\s+\d+\s+(?P<address>\S+):(?P<port>\d+)\s+\S+\s+LISTEN(?:\s+(?P<pid>\d+)/(?P<name>\S+))?"
)
_LINK = re.compile(r"^\d+: (?P<name>[^:@\s]+)\S*: <(?P<flags>[^>]*)> mtu (?P<mtu>\d+)")
_INET = re.compile(r"^\s+inet6? (?P<address>[0-9A-Fa-f.:]+)")


def sockets(text: str) -> list[Socket]:
    """One for each listening socket and owner; a socket whose owner is not shown has pid None."""
    found: list[Socket] = []
    for line in text.splitlines():
        if ss := _SS.match(line.strip()):
            address = ss["address"].strip("[]").split("%")[0]
            port = int(ss["port"])
            owners = [Socket(address, port, u["name"], int(u["pid"])) for u in _USERS.finditer(ss["rest"])]
            found += owners or [Socket(address, port)]
        elif netstat := _NETSTAT.match(line.strip()):
            pid = int(netstat["pid"]) if netstat["pid"] else None
            found.append(Socket(netstat["address"], int(netstat["port"]), netstat["name"] or "", pid))
    return found


def interfaces(text: str) -> list[Interface]:
    """Of `ip addr` or `ip link`."""
    found: list[Interface] = []
    for line in text.splitlines():
        if link := _LINK.match(line):
            found.append(Interface(link["name"], int(link["mtu"]), "UP" in link["flags"].split(",")))
        elif found and (inet := _INET.match(line)):
            last = found[-1]
            found[-1] = Interface(last.name, last.mtu, last.up, (*last.addresses, inet["address"]))
    return found
