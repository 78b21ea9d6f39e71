"""A set of hosts: up, down, and what can be done to one of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hosts.lab import cgroups, child, disk, netns, wiring
from tests.hosts.lab.faults import Faults
from tests.hosts.lab.host import LabHost
from tests.hosts.lab.image import image
from tests.hosts.lab.names import MAX_HOSTS, Names
from tests.hosts.lab.shell import LabError, mount_points

_BOOT_WITHIN = 60.0
_STOP_WITHIN = 100.0


class Lab:
    """`net` are the first three numbers of the hosts' network, which nobody else on the machine sees."""

    def __init__(self, base: Path, name: str, net: str = "10.77.0") -> None:
        self.names = Names(base.resolve(), name, net)
        self.net = Faults(self.names, self._helper)
        self._frozen: set[str] = set()

    @property
    def hosts(self) -> list[LabHost]:
        return [LabHost(self.names, host) for host in self.names.state().get("hosts", [])]

    @property
    def key(self) -> Path:
        """Private key for root, `ops` (sudo without a password) and `dev` (no sudo) on every host."""
        return self.names.dir / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.names.dir / "known_hosts"

    def inside(self) -> contextlib.AbstractContextManager[None]:
        """The calling thread is on the hosts' network, as 10.77.0.1, with a loopback of its own."""
        return netns.inside(self.names.switch)

    def up(self, count: int, bind_ro: Sequence[str] = (), memory: int | None = None) -> None:
        """`count` hosts that answer ssh. Those that run with the same settings stay as they are.

        `bind_ro` are folders of this machine that each host sees, as SOURCE or SOURCE:PLACE. `memory`
        limits a whole host, in bytes.
        """
        if not 1 <= count <= MAX_HOSTS:
            raise LabError(f"a set has 1 to {MAX_HOSTS} hosts")
        with self.names.lock():
            names, hosts = self.names, [f"h{number}" for number in range(1, count + 1)]
            want = {"image": str(image(names)), "bind_ro": list(bind_ro), "memory": memory, "net": names.net}
            state = names.state()
            if state and {key: state.get(key) for key in want} != want:
                self._down(keep=False)
                state = {}
            names.save({**state, **want})
            if not self.key.exists():
                disk.make_key(self.key, "testhosts")
            for number in range(count + 1, MAX_HOSTS + 1):
                if names.disk(f"h{number}").exists():
                    self._remove(f"h{number}")
            wiring.build(names, hosts)
            with ThreadPoolExecutor(MAX_HOSTS) as pool:
                alive = pool.map(self._answers, hosts)
                new = [host for host, running in zip(hosts, alive, strict=True) if not running]
                list(pool.map(self._fresh, new))
                disk.write_known_hosts(names, hosts)
                names.save({**names.state(), "hosts": hosts})
                list(pool.map(self._wait, new))

    def down(self, keep: bool = False) -> None:
        """Nothing of the set is left, with `keep` its disks and logs are."""
        with self.names.lock():
            self._down(keep)

    def crash(self, host: str) -> None:
        """Power failure: peers are told nothing."""
        with self._one(host):
            # The cable first and the sockets with it, or the kernel would say goodbye for the dead.
            wiring.unplug(self.names, host)
            child.kill(self.names, host)
            wiring.sh("ip", "netns", "del", self.names.namespace(host), check=False)

    def stop(self, host: str) -> None:
        """Orderly shutdown."""
        with self._one(host):
            for pid in cgroups.members(self.names, host, "run/supervisor"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            end = time.monotonic() + _STOP_WITHIN
            while cgroups.populated(self.names, host) and time.monotonic() < end:
                time.sleep(0.05)
            child.kill(self.names, host)

    def boot(self, host: str) -> None:
        """Power on; nothing when it runs."""
        with self._one(host):
            wiring.build(self.names, self.names.state()["hosts"])
            if not cgroups.populated(self.names, host):
                child.kill(self.names, host)
                self._start(host)
            self._wait(host)

    def wipe(self, host: str) -> None:
        """A new machine at the old address: empty disk, other host key."""
        with self._one(host):
            wiring.build(self.names, self.names.state()["hosts"])
            self._fresh(host)
            disk.write_known_hosts(self.names, self.names.state()["hosts"])
            self._wait(host)

    def freeze(self, host: str) -> None:
        """It hangs: its kernel still answers, no process does."""
        self._frozen.add(host)
        self._freezer(host, "1")

    def thaw(self, host: str) -> None:
        self._freezer(host, "0")
        self._frozen.discard(host)

    def restore(self) -> None:
        """Every host runs and every fault that was made through this object is gone; disks stay."""
        if self.net.active:
            self.net.heal()
        for host in self.names.state()["hosts"]:
            if not cgroups.populated(self.names, host):
                self.boot(host)
            elif host in self._frozen:
                self.thaw(host)

    def egress(self) -> str:
        """Lets hosts reach the package index; the URL for their https_proxy."""
        with self.names.lock():
            self._helper("_egress", "egress")
        return f"http://{self.names.address('ctl')}:3128"

    @contextlib.contextmanager
    def _one(self, host: str) -> Iterator[None]:
        with self.names.lock():
            if host not in self.names.state().get("hosts", []):
                raise LabError(f"there is no host {host} in the set {self.names.name}")
            yield

    def _fresh(self, host: str) -> None:
        child.kill(self.names, host)
        disk.fresh(self.names, host)
        self._start(host)

    def _start(self, host: str) -> None:
        cgroups.make(self.names, host)
        if memory := self.names.state().get("memory"):
            cgroups.limit_memory(self.names, host, memory)
        child.spawn(self.names, host, "boot", self.names.disk(host) / "console.log")

    def _answers(self, host: str) -> bool:
        if not cgroups.members(self.names, host, "run/supervisor"):
            return False
        return LabHost(self.names, host).booted()

    def _wait(self, host: str) -> None:
        """Until sshd answers and the boot is done, so that a plain user may log in too."""
        end, began = time.monotonic() + _BOOT_WITHIN, time.monotonic()
        found = LabHost(self.names, host)
        while not (self._banner(host) and found.booted()):
            now = time.monotonic()
            if now > end or (now - began > 3 and not cgroups.populated(self.names, host)):
                log = (self.names.disk(host) / "console.log").read_text(errors="replace")[-2000:]
                raise LabError(f"{host} did not boot\n{log}")
            time.sleep(0.02)

    def _banner(self, host: str) -> bool:
        with self.inside():
            try:
                with socket.create_connection((self.names.address(host), 22), timeout=1) as plain:
                    return plain.recv(4) == b"SSH-"
            except OSError:
                return False

    def _helper(self, group: str, role: str) -> None:
        """A process of the lab's own in a cgroup of its own, so that `down` finds it."""
        if cgroups.populated(self.names, group):
            return
        cgroups.make(self.names, group)
        ready, log = self.names.dir / f"{group}.ready", self.names.dir / f"{group}.log"
        ready.unlink(missing_ok=True)
        child.spawn(self.names, group, role, log)
        end = time.monotonic() + 10
        while not ready.exists():
            if time.monotonic() > end:
                raise LabError(f"{group} did not start: {log.read_text()[-500:]}")
            time.sleep(0.02)

    def _freezer(self, host: str, value: str) -> None:
        place = cgroups.unified(self.names, host)
        if place is None:
            raise LabError(f"{host} is not running")
        (place / "cgroup.freeze").write_text(value)

    def _remove(self, host: str) -> None:
        child.kill(self.names, host)
        wiring.sh("ip", "netns", "del", self.names.namespace(host), check=False)
        shutil.rmtree(self.names.disk(host))

    def _down(self, keep: bool) -> None:
        child.kill(self.names)
        wiring.remove(self.names)
        if any(mount.startswith(f"{self.names.dir}/") for mount in mount_points()):
            raise LabError(f"something is mounted below {self.names.dir}: it is not removed")
        if not keep and self.names.dir.exists():
            shutil.rmtree(self.names.dir)


def main(base: str, name: str, verb: str, *words: str) -> None:
    """`python -m tests.hosts.lab.lab BASE NAME up 2 | down | VERB HOST`, for looking around by hand.

    Then `nsenter --net=/run/netns/NAME-net ssh -F BASE/NAME/ssh_config h1`.
    """
    lab = Lab(Path(base), name)
    if verb == "up":
        lab.up(int(words[0]))
    else:
        getattr(lab, verb)(*words)
    print(*(f"{host.name} {host.address}" for host in lab.hosts), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
