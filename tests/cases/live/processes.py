"""Processes that die, stand still, or cannot begin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tests.cases.live.fleet import START, Fleet, Wrong
from tests.cases.live.row import Skip, row


def parent(fleet: Fleet, name: str) -> int:
    pid = fleet.unit(name).pid
    if pid is None:
        raise Wrong(f"{name} has no process")
    return pid


def ranks(fleet: Fleet, name: str) -> list[int]:
    return [int(r["pid"]) for r in fleet.state(name)["ranks"]]


def letter(pid: int) -> str:
    """The state of /proc/PID/stat; "" when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def killed(fleet: Fleet, name: str, rank: bool) -> Iterator[str]:
    pid = ranks(fleet, name)[0] if rank else parent(fleet, name)
    first = parent(fleet, name)
    os.kill(pid, signal.SIGKILL)
    fleet.wait(f"pid {pid} is gone", lambda: letter(pid) in ("", "Z", "X"))
    # Its supervisor has seen it, too: what comes later is one fault, what comes before another's guess.
    fleet.wait("its unit has ended", lambda: fleet.unit(name).pid != first)
    yield f"pid {pid} is gone"
    fleet.wait(f"{name} is back", lambda: fleet.unit(name).state == "active", START)
    fleet.restart(name)


def stopped(fleet: Fleet, name: str, rank: bool) -> Iterator[str]:
    pids = ranks(fleet, name) if rank else [parent(fleet, name), *ranks(fleet, name)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    fleet.wait("it stands", lambda: {letter(p) for p in pids} == {"T"})
    yield f"/proc/{pids[0]}/stat says T"
    for pid in reversed(pids):
        if letter(pid) == "T":
            os.kill(pid, signal.SIGCONT)
    fleet.wait(f"{name} is up", lambda: fleet.unit(name).state == "active", START)
    fleet.wait("the router counts it as ready", fleet.ready, START)
    if fleet.unit(name).restarts:
        fleet.restart(name)  # it stood longer than its own deadline allows


for _name in ("decode-0", "prefill-0"):
    for _rank, _of in ((True, f"{_name}'s rank"), (False, _name)):
        row(f"{_of} killed", "PD204", subject=_name, says="ended unasked")(
            partial(killed, name=_name, rank=_rank)
        )
        row(f"{_of} stopped", "PD202", subject=_name, says="was stopped by a signal")(
            partial(stopped, name=_name, rank=_rank)
        )
row("router killed", "PD204", subject="router", says="SIGKILL")(partial(killed, name="router", rank=False))


@row("decode's supervisor killed", "PD205", subject="decode-0", says="without a supervisor")
def supervisor_killed(fleet: Fleet) -> Iterator[str]:
    pid = fleet.unit("decode-0").keeper_pid
    if pid is None:
        raise Skip("its supervisor is systemd")
    os.kill(pid, signal.SIGKILL)
    fleet.wait("it is gone", lambda: letter(pid) in ("", "Z", "X"))
    yield f"the keeper, pid {pid}, is gone; decode-0 answers"
    fleet.restart("decode-0")


@row("decode stopped and left", "PD201", subject="decode-0", says="is stopped")
def left_stopped(fleet: Fleet) -> Iterator[str]:
    fleet.ctx.units("local").stop("decode-0")
    yield f"its unit is {fleet.unit('decode-0').state}"
    fleet.restart("decode-0")


@row("a stranger has decode's port", "PD206", subject="decode-0", says="is held by pid")
def port_taken(fleet: Fleet) -> Iterator[str]:
    port = str(fleet.ctx.fleet.engine("decode-0").port)
    units = fleet.ctx.units("local")
    units.stop("decode-0")
    server = [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1"]
    stranger = subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        fleet.wait("the stranger listens", lambda: _listens(stranger.pid, int(port)))
        units.start("decode-0")
        fleet.wait("decode-0 has ended over it", lambda: fleet.unit("decode-0").exit_code == 73)
        yield f"pid {stranger.pid} listens on {port}, decode-0 ended with 73"
    finally:
        stranger.kill()
        stranger.wait(10)
    fleet.restart("decode-0")


def _listens(pid: int, port: int) -> bool:
    """Whether `pid` holds a listening socket on `port` of 127.0.0.1."""
    with open("/proc/net/tcp") as table:
        lines = [line.split() for line in table if f":{port:04X} 00000000:0000 0A" in line]
    held = set()
    for fd in os.scandir(f"/proc/{pid}/fd"):
        try:
            held.add(os.readlink(fd.path))
        except OSError:
            continue
    return any(f"socket:[{words[9]}]" in held for words in lines)


def env_edited(fleet: Fleet, name: str, line: str) -> str:
    """Add a line to the env file of a unit, as with an editor; what it held before."""
    path = fleet.path("env", name)
    before = path.read_text()
    variable = line.partition("=")[0]
    kept = [old for old in before.splitlines() if not old.startswith(f"{variable}=")]
    path.write_text("\n".join([*kept, line, ""]))
    return before


@row("decode in a crash loop", "PD215", subject="decode-0", says="encodings")
def crash_loop(fleet: Fleet) -> Iterator[str]:
    """An interpreter that does not find its own library ends before the engine's first line."""
    before = env_edited(fleet, "decode-0", 'PYTHONHOME="/nonexistent"')
    try:
        os.kill(parent(fleet, "decode-0"), signal.SIGKILL)
        fleet.wait("three ends", lambda: fleet.unit("decode-0").restarts >= 3, START)
        yield f"{fleet.unit('decode-0').restarts} restarts, exit {fleet.unit('decode-0').exit_code}"
    finally:
        fleet.path("env", "decode-0").write_text(before)
    fleet.restart("decode-0")


@row("a variable that decode refuses", "PD201", subject="decode-0", says="exit code 2")
def bad_variable(fleet: Fleet) -> Iterator[str]:
    before = env_edited(fleet, "decode-0", 'PD_DECODE_TRANSFER_TIMEOUT="ninety"')
    try:
        os.kill(parent(fleet, "decode-0"), signal.SIGKILL)
        fleet.wait("it has failed", lambda: fleet.unit("decode-0").state == "failed", START)
        yield f"its unit has failed, exit {fleet.unit('decode-0').exit_code}"
    finally:
        fleet.path("env", "decode-0").write_text(before)
    fleet.restart("decode-0")


@row("decode's model is gone", "PD201", "PD214", subject="decode-0", says="model")
def no_model(fleet: Fleet) -> Iterator[str]:
    units = fleet.ctx.units("local")
    good = units.installed("decode-0")
    if good is None:
        raise Wrong("decode-0 is not installed")
    empty = fleet.folder / "no-model"
    empty.mkdir(exist_ok=True)
    model = fleet.ctx.fleet.model.path
    units.install(replace(good, argv=tuple(str(empty) if w == model else w for w in good.argv)))
    try:
        units.stop("decode-0")
        units.start("decode-0")
        fleet.wait("it has failed", lambda: fleet.unit("decode-0").state == "failed", START)
        yield f"its unit has failed, exit {fleet.unit('decode-0').exit_code}"
    finally:
        units.install(good)
    fleet.restart("decode-0")
