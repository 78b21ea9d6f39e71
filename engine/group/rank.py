"""The entry of a rank process: `python -m engine rank`, started by the parent and nobody else."""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import msgspec

from engine.core.errors import EngineError, Exit, RankLost
from engine.core.framing import Channel
from engine.core.settings import Settings
from engine.group.control import Control, beat
from engine.group.leader_rank import run_leader
from engine.group.messages import EngineConfig, Fatal, Start, ToRank
from engine.group.outbox import Outbox
from engine.group.worker import run_worker
from engine.parallel.comm import Comm
from engine.runner import ModelRunner, Tuning

PR_SET_PDEATHSIG = 1
# What stands still is ended by PD_START_TIMEOUT, PD_RANK_TIMEOUT and PD_STEP_TIMEOUT, which say why.
# Collectives that gave up before those would end a rank that only waits for a slower one.
COLLECTIVE_LIMIT = 86400.0


def die_with_parent() -> None:
    """Ask the kernel to end this rank when its parent dies, so that no rank outlives its engine."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        sys.exit(Exit.RANK_DIED)


def load(config: EngineConfig, settings: Settings, rank: int) -> ModelRunner:
    """This rank's shard and KV pool, in the group's collectives; ModelError when no number comes of it."""
    comm = Comm(rank, config.tp, config.store, config.device, timeout=COLLECTIVE_LIMIT)
    runner = ModelRunner(
        Path(config.model),
        dtype=config.dtype,
        device=config.device,
        rank=rank,
        tp=config.tp,
        comm=comm,
        page_size=config.page_size,
        pages=config.pages,
        tuning=Tuning.of(settings, config.max_running),
    )
    runner.prove()
    runner.prepare()
    return runner


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m engine rank")
    p.add_argument("--control", type=int, required=True, help="descriptor of the channel to the parent")
    p.add_argument("--work", type=int, nargs="*", default=[], help="descriptors between leader and workers")
    return p


def run_rank(argv: list[str]) -> int:
    """Serve as a rank until told to stop; a failure is told to the parent in one sentence of ours."""
    args = parser().parse_args(argv)
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1)  # a parent that ends a rank without progress asks where it stands
    channel = Channel(socket.socket(fileno=args.control))
    works = [Channel(socket.socket(fileno=fd)) for fd in args.work]
    start = msgspec.msgpack.decode(channel.receive(), type=ToRank)
    if not isinstance(start, Start):
        raise ConnectionError("the parent's first message is not a start")
    control = Control(channel)
    outbox = Outbox(channel, "parent", lambda why: os._exit(Exit.RANK_DIED))
    fatal: Fatal | None = None
    try:
        settings = Settings.from_env(os.environ)
        beating = (outbox, start.rank, control, settings["rank"])
        threading.Thread(target=beat, args=beating, name="beat", daemon=True).start()
        runner = load(start.config, settings, start.rank)
        if start.rank == 0:
            run_leader(start.config, settings, runner, control, outbox, works)
        else:
            run_worker(start.config, settings, start.rank, runner, works[0])
    except EngineError as error:
        effect = isinstance(error, RankLost)
        fatal = Fatal(rank=start.rank, exit=int(error.exit), message=str(error), effect=effect)
    except Exception as error:
        logging.getLogger("pdctl.engine").exception("rank %d failed", start.rank)
        message = f"rank {start.rank} failed by the engine's own fault, {type(error).__name__}"
        fatal = Fatal(rank=start.rank, exit=int(Exit.INTERNAL), message=message)
    if fatal is not None:
        outbox.put(fatal)
    outbox.close(2.0)
    # Native threads of NIXL and gloo may still be in a call; the process is done either way.
    os._exit(Exit.OK if fatal is None else fatal.exit)
