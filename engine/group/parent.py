"""The parent's hold on its ranks: spawn them, hear them, and end all of them when one is lost."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.core.framing import Channel
from engine.group.messages import EngineConfig, Start


@dataclass
class Rank:
    """A rank process as its parent sees it.

    `beat` is the monotonic time of its last sign of life, None until the first: importing torch on a
    loaded host takes long, and PD_START_TIMEOUT bounds that.
    """

    rank: int
    process: subprocess.Popen[bytes]
    control: Channel
    beat: float | None = None


def rank_environment(tp: int) -> dict[str, str]:
    """The environment of a rank: thread counts fixed before torch is imported.

    libgomp's spinning threads make two processes on the same cores much slower, so they wait
    passively, and each rank gets its share of the cores.
    """
    env = dict(os.environ)
    threads = str(max(1, len(os.sched_getaffinity(0)) // tp))
    env.setdefault("OMP_NUM_THREADS", threads)
    env.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return env


def spawn(config: EngineConfig) -> tuple[list[Rank], Path]:
    """Start all ranks of a group; returns them and the folder of their rendezvous file."""
    folder = Path(tempfile.mkdtemp(prefix=f"pd-{config.instance}-"))
    config = msgspec.structs.replace(config, store=str(folder / "store"))
    pairs = [socket.socketpair() for _ in range(config.tp - 1)]
    ranks = []
    for rank in range(config.tp):
        works = [mine for mine, _ in pairs] if rank == 0 else [pairs[rank - 1][1]]
        ranks.append(_spawn_rank(config, rank, works))
    for mine, theirs in pairs:
        mine.close()
        theirs.close()
    return ranks, folder


def _spawn_rank(config: EngineConfig, rank: int, works: list[socket.socket]) -> Rank:
    ours, theirs = socket.socketpair()
    fds = [theirs.fileno(), *(w.fileno() for w in works)]
    argv = [sys.executable, "-m", "engine", "rank", "--control", str(fds[0])]
    if works:
        argv += ["--work", *map(str, fds[1:])]
    process = subprocess.Popen(argv, pass_fds=fds, env=rank_environment(config.tp))
    theirs.close()
    channel = Channel(ours)
    channel.send(Start(config, rank))
    return Rank(rank, process, channel)


def end(ranks: list[Rank], folder: Path, patience: float) -> None:
    """Wait for ranks to leave by themselves, then SIGKILL; a stopped process dies of it as well."""
    deadline = time.monotonic() + patience
    while any(r.process.poll() is None for r in ranks) and time.monotonic() < deadline:
        time.sleep(0.02)
    kill(ranks)
    for r in ranks:
        r.process.wait()
        r.control.close()
    shutil.rmtree(folder, ignore_errors=True)


def ask_where(ranks: list[Rank]) -> None:
    """Each rank writes to its log where every thread of it stands."""
    for r in ranks:
        if r.process.poll() is None:
            r.process.send_signal(signal.SIGUSR1)


def kill(ranks: list[Rank]) -> None:
    """SIGKILL at once: a rank that outlives its leader could still write into a peer's pages."""
    for r in ranks:
        if r.process.poll() is None:
            r.process.send_signal(signal.SIGKILL)


def forgive(ranks: list[Rank], seconds: float) -> None:
    """The parent itself was stopped that long and heard nobody: not the ranks' silence."""
    for r in ranks:
        if r.beat is not None:
            r.beat += seconds
