"""What a command on a host costs: by pdctl's transport and by OpenSSH's shared connection, in turn.

OpenSSH is `ssh` with ControlMaster, one process a command, as scripts and ansible use it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pdctl.transport.command import Command
from pdctl.transport.open import open_transport
from tests.bench.procs import BenchError
from tests.bench.stats import percentile, show, spread, table
from tests.hosts.conftest import BASE
from tests.hosts.lab.lab import Lab
from tests.hosts.lab.shell import LabError
from tests.hosts.needs import missing
from tests.hosts.operator_home import fleet_host, make_home

SIZE = 32 << 20
DEADLINE = 60.0  # of one command by ssh
TRUE = Command(("true",))


def run(count: int) -> tuple[str, dict[str, object]]:
    """`count` commands each way, fewer connections and files; the printed table and the JSON document."""
    if reason := missing(BASE):
        raise BenchError(reason)
    lab = Lab(BASE, "bssh")
    try:
        lab.up(1)
        with tempfile.TemporaryDirectory() as home, _home(Path(home), lab), lab.inside():
            return _report(_measure(lab, Path(home), count))
    except (LabError, subprocess.SubprocessError) as error:
        raise BenchError(str(error)) from None
    finally:
        lab.down()


@contextmanager
def _home(home: Path, lab: Lab) -> Iterator[None]:
    before = os.environ["HOME"]
    make_home(home, lab)
    os.environ["HOME"] = str(home)
    try:
        yield
    finally:
        os.environ["HOME"] = before


def _measure(lab: Lab, home: Path, count: int) -> dict[str, dict[str, list[float]]]:
    """Seconds by what is done and by who does it."""
    address = lab.hosts[0].address
    plain = ["ssh", "-F", str(lab.names.dir / "ssh_config")]
    shared = [*plain, "-o", f"ControlPath={home}/cm", "-o", "ControlMaster=auto", "-o", "ControlPersist=60"]
    data, file = os.urandom(SIZE), home / "data"
    file.write_bytes(data)

    def ssh(words: list[str], script: str, stdin: str = os.devnull) -> None:
        with open(stdin, "rb") as source:
            subprocess.run([*words, address, script], stdin=source, check=True, timeout=DEADLINE)

    def connect() -> None:
        fresh = open_transport(fleet_host("h1", address))
        fresh.run(TRUE, 30)
        fresh.close()

    held = open_transport(fleet_host("h1", address))
    held.run(TRUE, 30)
    ssh(shared, "true")
    found = {
        "a command": _in_turn(count, lambda: held.run(TRUE, 30), lambda: ssh(shared, "true")),
        "connect and a command": _in_turn(max(5, count // 20), connect, lambda: ssh(plain, "true")),
        f"send {SIZE >> 20} MiB": _in_turn(
            5, lambda: held.put(data, "/tmp/a", deadline=60), lambda: ssh(shared, "cat >/tmp/b", str(file))
        ),
    }
    held.close()
    subprocess.run([*shared, "-O", "exit", address], stderr=subprocess.DEVNULL, check=False)
    return found


def _in_turn(count: int, ours: Callable[[], object], theirs: Callable[[], object]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {"pdctl": [], "ssh": []}
    acts = [("pdctl", ours), ("ssh", theirs)]
    for number in range(count):
        for who, act in acts if number % 2 else reversed(acts):
            began = time.perf_counter()
            act()
            seconds[who].append(time.perf_counter() - began)
    return seconds


def _report(found: dict[str, dict[str, list[float]]]) -> tuple[str, dict[str, object]]:
    rows = []
    for what, who in found.items():
        ratio = percentile(who["ssh"], 0.5) / percentile(who["pdctl"], 0.5)
        rows.append([what, show(who["pdctl"], 1e3, 1), show(who["ssh"], 1e3, 1), f"{ratio:.1f}"])
    text = table(["what", "pdctl ms", "OpenSSH ms", "OpenSSH / pdctl"], rows)
    document: dict[str, object] = {
        f"{what}_s": {name: spread(values) for name, values in who.items()} for what, who in found.items()
    }
    return text, document
