"""What can be done to the network between hosts. A peer is h1, h2, …, `ctl` (the test) or `any`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from tests.hosts.lab import child
from tests.hosts.lab.names import Names
from tests.hosts.lab.shell import sh
from tests.hosts.lab.wiring import on_switch

_RULE = "add rule bridge faults rules ether type ip"


class Faults:
    """All of them last until `heal`. Packets vanish: nobody is told, as with a dead switch."""

    def __init__(self, names: Names, helper: Callable[[str, str], None]) -> None:
        self._names = names
        self._helper = helper
        self.active = False

    def cut(self, a: str, b: str, oneway: bool = False) -> None:
        for match in self._directions(a, b, oneway):
            self._add(f"{match} counter drop")

    def loss(self, a: str, b: str, percent: float, oneway: bool = False) -> None:
        for match in self._directions(a, b, oneway):
            self._add(f"{match} numgen random mod 1000 < {round(percent * 10)} counter drop")

    def port(self, host: str, port: int) -> None:
        """Nothing reaches that port."""
        self._add(f"ip daddr {self._names.address(host)} tcp dport {port} counter drop")

    def rate(self, host: str, rate: str) -> None:
        """Both ways, as tc writes it: 100mbit."""
        self.active = True
        for namespace, device in self._ends(host):
            shape = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "100ms")
            sh("tc", "-n", namespace, "qdisc", "replace", "dev", device, *shape)

    def delay(self, host: str, peer: str, ms: float, jitter_ms: float = 0.0) -> None:
        """Each way. Through a process of its own, so about 150 Mbit/s at 50 ms."""
        self.active = True
        file = self._names.dir / f"wire-{host}.json"
        rules = json.loads(file.read_text()) if file.exists() else {}
        rules["any" if peer == "any" else self._names.address(peer)] = [ms, jitter_ms]
        temporary = file.with_suffix(".tmp")
        temporary.write_text(json.dumps(rules))
        temporary.rename(file)
        self._helper(f"_wire-{host}", f"wire-{host}")

    def link(self, host: str, up: bool) -> None:
        """The cable."""
        self.active = True
        sh("ip", "-n", self._names.switch, "link", "set", host, "up" if up else "down")

    def heal(self) -> None:
        """Everything of the above, on every host."""
        self.active = False
        on_switch(self._names, "nft", "-f", "-", input="flush chain bridge faults rules")
        for host in self._names.state().get("hosts", []):
            slow = self._names.dir / f"wire-{host}.json"
            if slow.exists():
                child.kill(self._names, f"_wire-{host}")
                slow.unlink()
            sh("ip", "-n", self._names.switch, "link", "set", host, "master", "br0", "up", check=False)
            sh("ip", "-n", self._names.switch, "link", "del", f"wb-{host}", check=False)
            for namespace, device in self._ends(host):
                sh("tc", "-n", namespace, "qdisc", "del", "dev", device, "root", check=False)

    def _ends(self, host: str) -> tuple[tuple[str, str], ...]:
        return (self._names.switch, host), (self._names.namespace(host), "eth0")

    def _add(self, rule: str) -> None:
        self.active = True
        on_switch(self._names, "nft", "-f", "-", input=f"{_RULE} {rule}")

    def _directions(self, a: str, b: str, oneway: bool) -> Iterator[str]:
        yield f"{self._side(a, 'saddr')} {self._side(b, 'daddr')}"
        if not oneway:
            yield f"{self._side(b, 'saddr')} {self._side(a, 'daddr')}"

    def _side(self, peer: str, which: str) -> str:
        return "" if peer == "any" else f"ip {which} {self._names.address(peer)}"
