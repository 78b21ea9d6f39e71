"""From nothing to answers with the real libraries: hosts that have Debian, sshd and no index at all.

torch, triton, nixl and the rest come out of the wheelhouse that pdctl fills and sends, on a connection that
breaks on the way.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, init_fleet, remote
from pdctl.release.lock import engine_lock
from pdctl.release.runtime import Facts
from pdctl.release.wheels import Wheel, fetch
from tests.hosts.lab.host import LabHost, until
from tests.hosts.lab.lab import Lab

ROOT = "/opt/pdctl/whole"
# A wheel that is larger than this is one of those that matter.
LARGE = 10 << 20


@pytest.fixture(scope="module")
def wheels() -> list[Wheel]:
    """pdctl's cache, filled for Debian's Python on this machine's network, before the hosts'."""
    debian = Facts("/usr/bin/python3", "3.11.2", platform.machine(), "2.36", {})
    return fetch(debian, engine_lock(), None, "h1", print)


@pytest.fixture
def file(
    wheels: list[Wheel], hosts: list[LabHost], home: Path, smollm: Path, tmp_path: Path
) -> Iterator[Path]:
    """A pair over h1 and h2, the router on h1."""
    path = tmp_path / "fleet" / "fleet.toml"
    path.parent.mkdir()
    places = tuple(remote(f"{h.name}={h.address}") for h in hosts[:2])
    init_fleet(path, Wanted("whole", str(smollm), hosts=places))
    text = path.read_text().replace('transport = "ssh"\n', 'transport = "ssh"\nruntime = "wheelhouse"\n')
    path.write_text(text.replace('dtype = "float32"\n', 'dtype = "float32"\npages = 256\n'))
    try:
        yield path
    finally:
        with Context(load_fleet(path)) as ctx:
            down(ctx)
        for host in hosts[:2]:
            host.sh(f"rm -rf {ROOT} /etc/systemd/system/pdctl-* && systemctl daemon-reload", timeout=120.0)


def pdctl(file: Path, cache: str, *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "pdctl", "--fleet", str(file), *words]
    env = {**os.environ, "XDG_CACHE_HOME": cache}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(run: subprocess.Popen[str], within: float = 1200.0) -> tuple[int, str]:
    out, err = run.communicate(timeout=within)
    return run.returncode, out + err


def received(host: LabHost) -> dict[str, int]:
    """Wheel -> when its file got there, nanoseconds."""
    said = host.sh(
        f"find {ROOT}/wheels -name '*.whl' -not -name '.*' -printf '%f %T@\\n' 2>/dev/null || true"
    )
    return {name: int(float(at) * 1e9) for name, at in (line.split() for line in said.splitlines())}


def arrived(host: LabHost) -> int:
    """Bytes that its network card took in."""
    (link,) = json.loads(host.sh("ip -s -j link show eth0"))
    return int(link["stats64"]["rx"]["bytes"])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_real_closure_without_an_index(
    wheels: list[Wheel], file: Path, hosts: list[LabHost], lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    # ROOT/pdctl/wheels/KEY/FILE; the HOME of this test has none.
    cache, size = str(wheels[0].path.parents[3]), sum(w.size for w in wheels)
    h1, h2 = hosts[:2]
    for host in (h1, h2):
        code, said = host.try_sh("python3 -c 'import torch'")
        assert code != 0 and "No module named 'torch'" in said
    began, before = time.monotonic(), {h.name: arrived(h) for h in (h1, h2)}
    run = pdctl(file, cache, "deploy", "--yes")
    dropped = threading.Event()

    def drop() -> None:
        """Once a wheel that matters is there; stopped first, so that the next one is surely on its way."""
        large = {w.name for w in wheels if w.size > LARGE}
        until(lambda: run.poll() is not None or large & received(h2).keys(), 600.0, "a large wheel is there")
        h2.sh("pkill -STOP -f '^sshd: root'; sleep 1; pkill -KILL -f '^sshd: root'")
        dropped.set()

    cutting = threading.Thread(target=drop, daemon=True)
    cutting.start()
    code, said = ended(run)
    cutting.join(60.0)
    assert dropped.is_set() and code in (Exit.PARTIAL, Exit.UNREACHABLE), said
    assert "h2" in said and "Traceback" not in said, said
    kept, there = received(h2), arrived(h2)
    assert 0 < len(kept) < len(wheels), "it was cut off on the way"
    first = time.monotonic() - began
    code, said = ended(pdctl(file, cache, "deploy", "--yes"))
    assert code == 0, said
    second = time.monotonic() - began - first
    assert {n: received(h2)[n] for n in kept} == kept, "what was there is not sent again"
    again, whole = arrived(h2) - there, sum(w.size for w in wheels if w.name in kept)
    assert again < size - whole + (20 << 20), f"{again} bytes, {size - whole} were lacking"
    assert arrived(h1) - before["h1"] < size + (40 << 20), "h1 was sent each once"
    for host in (h1, h2):
        said = host.sh(f"{ROOT}/current/venv/bin/python -c 'import torch; print(torch.__file__)'")
        assert said.startswith(f"{ROOT}/current/venv/lib/")
    code, said = ended(pdctl(file, cache, "deploy", "--json"))
    assert code == 0 and json.loads(said)["changes"] == 0
    with Context(load_fleet(file)) as ctx, ctx.client(120.0) as client:
        body = {
            "model": ctx.fleet.model.name,
            "prompt": "The capital of France is",
            "max_tokens": 8,
            "temperature": 0,
        }
        answer = client.post(f"{ctx.fleet.router.url}/v1/completions", json=body)
        assert "Paris" in answer.json()["choices"][0]["text"], answer.text
    disk = h2.sh(f"du -sm {ROOT}").split()[0]
    with capsys.disabled():
        print(
            f"\n{size / 1e6:.0f} MB of wheels; cut off after {first:.0f} s, {len(kept)} of {len(wheels)}; "
            f"again {again / 1e6:.0f} MB, {second:.0f} s; {disk} MiB on the host"
        )
