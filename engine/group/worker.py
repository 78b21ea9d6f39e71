"""A rank that is not the leader: it runs the batches and transfer commands it is sent, in order."""

from __future__ import annotations

import os
import queue
import threading

import msgspec

from engine.core.errors import Exit, RankLost
from engine.core.framing import Channel
from engine.core.settings import Settings
from engine.core.types import Batch
from engine.group.messages import EngineConfig, RankUp, Relay, Reported, Step, Stop, ToWorker
from engine.group.outbox import Outbox
from engine.group.transfer_rank import agent_info, start_agent
from engine.runner import ModelRunner
from engine.transfer.agent import AgentThread


def run_worker(
    config: EngineConfig, settings: Settings, rank: int, runner: ModelRunner, work: Channel
) -> None:
    """Until the leader says stop; RankLost when its channel ends without a word."""
    outbox = Outbox(work, "leader", lambda why: os._exit(Exit.RANK_DIED))
    agent = start_agent(config, rank, runner, lambda report: outbox.put(Reported(report)))
    outbox.put(RankUp(agent_info(agent, rank)))
    batches: queue.SimpleQueue[Batch | RankLost | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(work, batches, agent), name="work", daemon=True)
    reader.start()
    while (batch := batches.get()) is not None:
        if isinstance(batch, RankLost):
            raise batch
        runner.run(batch)
    if agent is not None:
        agent.stop()
    outbox.close(1.0)


def _read(
    work: Channel, batches: queue.SimpleQueue[Batch | RankLost | None], agent: AgentThread | None
) -> None:
    decoder = msgspec.msgpack.Decoder(ToWorker)
    try:
        while True:
            message = decoder.decode(work.receive())
            if isinstance(message, Step):
                batches.put(message.batch)
            elif isinstance(message, Relay) and agent is not None:
                agent.submit(message.command)
            elif isinstance(message, Stop):
                break
    except (OSError, msgspec.MsgspecError):
        batches.put(RankLost("the leader's channel"))
    else:
        batches.put(None)
