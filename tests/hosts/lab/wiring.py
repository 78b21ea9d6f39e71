"""The network of a set: a bridge in one namespace, and each host's `eth0` at the other end of a cable.

Addresses are set from outside before a host boots, so there is no DHCP and a host that comes back has the
address it had. The hosts have no way out of this network.
"""

from __future__ import annotations

import os
import re
from typing import Any

from tests.hosts.lab import netns
from tests.hosts.lab.names import Names
from tests.hosts.lab.shell import mount_points, sh

_FILTER = """
table bridge faults {
  chain rules { }
  chain forward {
    type filter hook forward priority 0
    iifname "wa-*" accept
    oifname "wa-*" accept
    jump rules
  }
  chain input   { type filter hook input priority 0; jump rules; }
  chain output  { type filter hook output priority 0; jump rules; }
}
"""
# A bridge in a namespace must not depend on the machine's br_netfilter settings.
_NO_NETFILTER = [f"net.bridge.bridge-nf-call-{kind}=0" for kind in ("iptables", "ip6tables", "arptables")]


def namespaces(names: Names) -> set[str]:
    listed = sh("ip", "netns", "list", check=False).stdout.split("\n")
    mine = re.compile(rf"{names.name}-(net|h\d+)")
    return {line.split()[0] for line in listed if line.strip() and mine.fullmatch(line.split()[0])}


def on_switch(names: Names, *argv: object, **options: Any) -> None:
    """Run a program in the namespace of the bridge."""
    sh("nsenter", f"--net={netns.path(names.switch)}", *argv, **options)


def has_link(namespace: str, link: str) -> bool:
    return not sh("ip", "-n", namespace, "link", "show", link, check=False).returncode


def build(names: Names, hosts: list[str]) -> None:
    """Make what is missing; what is whole stays, with its faults."""
    state = names.state()
    if "had_run_netns" not in state:
        names.save({**state, "had_run_netns": "/run/netns" in mount_points()})
    have = namespaces(names)
    if names.switch in have and not has_link(names.switch, "br0"):
        sh("ip", "netns", "del", names.switch)
        have.discard(names.switch)
    if names.switch not in have:
        for namespace in have:
            sh("ip", "netns", "del", namespace)
        have = set()
        _build_switch(names)
    for host in hosts:
        namespace = names.namespace(host)
        if namespace in have and has_link(namespace, "eth0"):
            continue
        if namespace in have:
            sh("ip", "netns", "del", namespace)
        _plug_in(names, host)


def _build_switch(names: Names) -> None:
    sh("ip", "netns", "add", names.switch)
    commands = f"""link set lo up
link add br0 address 02:77:00:00:00:01 type bridge forward_delay 0 stp_state 0
addr add {names.address("ctl")}/24 dev br0
link set br0 up
"""
    sh("ip", "-n", names.switch, "-batch", "-", input=commands)
    on_switch(names, "sysctl", "-qw", *_NO_NETFILTER, check=False)
    on_switch(names, "nft", "-f", "-", input=_FILTER)


def _plug_in(names: Names, host: str) -> None:
    namespace = names.namespace(host)
    sh("ip", "-n", names.switch, "link", "del", host, check=False)
    sh("ip", "netns", "add", namespace)
    pair = ("peer", "name", "eth0", "address", names.mac(host), "netns", namespace)
    sh("ip", "-n", names.switch, "link", "add", host, "type", "veth", *pair)
    slow = f"wb-{host}"
    bridge = slow if has_link(names.switch, slow) else "br0"
    sh("ip", "-n", names.switch, "link", "set", host, "master", bridge, "up")
    commands = f"""link set lo up
addr add {names.address(host)}/24 dev eth0
link set eth0 up
route add default via {names.address("ctl")}
"""
    sh("ip", "-n", namespace, "-batch", "-", input=commands)


def unplug(names: Names, host: str) -> None:
    """The cable and the sockets behind it go without a word, as with a power failure."""
    sh("ip", "-n", names.switch, "link", "del", host, check=False)


def remove(names: Names) -> None:
    for namespace in namespaces(names):
        sh("ip", "netns", "del", namespace)
    if names.state().get("had_run_netns", True):
        return
    while "/run/netns" in mount_points() and not os.listdir("/run/netns"):
        if sh("umount", "/run/netns", check=False).returncode:
            return
