"""Rank 0's process: wires runner, transfer and scheduler loop together, and serves the control channel."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import msgspec
import psutil

from engine import __version__
from engine.core.errors import EngineError, RankLost
from engine.core.framing import Channel
from engine.core.settings import Settings
from engine.core.types import Batch, Slice
from engine.faults import Faults
from engine.group.control import Control
from engine.group.leader import Leader, admin
from engine.group.messages import (
    Abort,
    Admin,
    AdminReply,
    EngineConfig,
    RankUp,
    Relay,
    Reported,
    Snapshot,
    Step,
    Stop,
    Submit,
    ToLeader,
    Up,
)
from engine.group.outbox import Outbox
from engine.group.transfer_rank import agent_info, start_agent
from engine.runner import ModelRunner, sample
from engine.transfer.commands import AgentInfo, Command, Report
from engine.transfer.coordinator import Transfer
from engine.transfer.layout import layout_name

PUBLISH_INTERVAL = 0.25
# Verbs that touch no scheduler state answer even while a step runs.
AT_ONCE = ("relink", "timeouts", "faults")


class Workers:
    """The other ranks of the group, as seen by the leader."""

    def __init__(self, works: list[Channel]) -> None:
        self._works = works
        self._outboxes = [Outbox(w, f"rank-{i + 1}", lambda why: None) for i, w in enumerate(works)]

    def agents(self) -> list[AgentInfo]:
        """Wait for every worker's RankUp, as long as the parent's supervision lets it. RankLost."""
        return [self._up(index, work) for index, work in enumerate(self._works, 1)]

    def _up(self, rank: int, work: Channel) -> AgentInfo:
        decoder = msgspec.msgpack.Decoder(ToLeader)
        try:
            while True:  # its transfer thread beats before the model is up
                message = decoder.decode(work.receive())
                if isinstance(message, RankUp):
                    return message.agent
        except OSError as error:
            raise RankLost(f"rank {rank}'s channel") from error

    def send(self, message: object) -> None:
        for outbox in self._outboxes:
            outbox.put(message)

    def listen(self, on_report: Callable[[Report], None]) -> None:
        for index, work in enumerate(self._works):
            threading.Thread(
                target=self._read, args=(work, on_report), name=f"reports-{index + 1}", daemon=True
            ).start()

    def _read(self, work: Channel, on_report: Callable[[Report], None]) -> None:
        decoder = msgspec.msgpack.Decoder(ToLeader)
        try:
            while True:
                message = decoder.decode(work.receive())
                if isinstance(message, Reported):
                    on_report(message.report)
        except (OSError, msgspec.MsgspecError):
            return  # the worker is gone; the parent ends the group

    def close(self) -> None:
        self.send(Stop())
        for outbox in self._outboxes:
            outbox.close(1.0)


def fingerprint(config: EngineConfig, runner: ModelRunner) -> dict[str, Any]:
    """What two sides of an edge must agree on (tp may differ, and mostly page_size by a whole factor)."""
    return {
        "model": runner.digest,
        "dtype": config.dtype,
        "page_size": config.page_size,
        "layout": layout_name(runner.shape),
        "layers": runner.shape.layers,
        "kv_heads": runner.shape.kv_heads,
        "head_dim": runner.shape.head_dim,
        "tp": config.tp,
    }


def run_leader(
    config: EngineConfig,
    settings: Settings,
    runner: ModelRunner,
    control: Control,
    outbox: Outbox,
    works: list[Channel],
) -> None:
    """Serve until the parent says stop."""
    faults = Faults(enabled=config.drill)
    workers = Workers(works)
    listeners: list[Callable[[Report], None]] = []

    def reported(report: Report) -> None:
        for listener in listeners:  # none before the transfer layer stands: only beats come then
            listener(report)

    agent = start_agent(config, 0, runner, reported)

    def broadcast(batch: Batch) -> None:
        workers.send(Step(batch))

    def command(item: Command) -> None:
        if agent is not None:
            agent.submit(item)
        workers.send(Relay(item))

    leader = Leader(config, settings, runner, sample, broadcast, outbox.put, faults)
    infos = [agent_info(agent, 0), *workers.agents()]
    print_ = fingerprint(config, runner)
    transfer = _transfer(config, settings, print_, infos, command, leader)
    listeners.append(transfer.on_report)
    leader.attach(transfer)
    _self_test(leader, runner, workers)
    workers.listen(transfer.on_report)
    transfer.start()
    outbox.put(_up(print_, runner, time.time() - psutil.Process().create_time()))
    threading.Thread(target=_publish, args=(leader, outbox), name="publisher", daemon=True).start()
    threading.Thread(target=_serve, args=(leader, control, outbox), name="control", daemon=True).start()
    leader.run()
    transfer.stop()
    workers.close()
    if agent is not None:
        agent.stop()


def _transfer(
    config: EngineConfig,
    settings: Settings,
    print_: dict[str, Any],
    agents: list[AgentInfo],
    ranks: Callable[[Command], None],
    leader: Leader,
) -> Transfer:
    return Transfer(
        role=config.role,
        instance=config.instance,
        incarnation=config.incarnation,
        fingerprint=print_,
        agents=agents,
        settings=settings,
        token=config.token,
        ranks=ranks,
        sink=leader,
        host=config.host,
        bootstrap_port=config.bootstrap_port,
        peers=list(config.peers),
        legacy=config.legacy_bootstrap,
        faults=leader.faults,
    )


def _self_test(leader: Leader, runner: ModelRunner, workers: Workers) -> None:
    """One forward pass through all ranks before the engine says it is up: the pages are nobody's yet."""
    pages = list(range(1 + runner.shape.state_pages))
    batch = Batch(0, [Slice([0, 0, 0, 0], 0, pages, True)])
    workers.send(Step(batch))
    logits = runner.run(batch)
    if logits is None or not bool(logits.isfinite().all()):
        raise EngineError("engine_failed", "The model's self-test gave no finite logits.")


def _up(print_: dict[str, Any], runner: ModelRunner, seconds: float) -> Up:
    versions = {"engine": __version__, "python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in ("torch", "nixl")}
    return Up(
        fingerprint=print_,
        max_model_len=runner.max_model_len,
        eos=runner.eos,
        load_seconds=round(seconds, 3),
        versions=versions,
    )


def _publish(leader: Leader, outbox: Outbox) -> None:
    """State and ages on a timer, whatever the scheduler does; skipped while the parent reads nothing."""
    while True:
        if outbox.pending < 1000:
            outbox.put(Snapshot(leader.document()))
        time.sleep(PUBLISH_INTERVAL)


def _serve(leader: Leader, control: Control, outbox: Outbox) -> None:
    while (message := control.receive()) is not None:
        if isinstance(message, Submit):
            leader.submit(message.request)
        elif isinstance(message, Abort):
            leader.abort(message.id, message.room, message.by)
        elif isinstance(message, Admin):
            _administer(leader, message, outbox)
        elif isinstance(message, Stop):
            break
    leader.stop()


def _administer(leader: Leader, message: Admin, outbox: Outbox) -> None:
    def answer() -> None:
        try:
            document = admin(leader, message.verb, message.args)
            outbox.put(AdminReply(seq=message.seq, document=document))
        except EngineError as error:
            reply = AdminReply(seq=message.seq, code=error.code, message=str(error), status=error.status)
            outbox.put(reply)
        except (TypeError, ValueError) as error:
            outbox.put(AdminReply(seq=message.seq, code="invalid_request", message=str(error), status=400))

    if message.verb in AT_ONCE:
        answer()
    else:
        leader.post(answer)
