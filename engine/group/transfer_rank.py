"""A rank's side of KV transfer: its agent over its pool; nothing at all on an engine that exchanges none."""

from __future__ import annotations

import os
from collections.abc import Callable

from engine.core.errors import Exit
from engine.core.ids import agent_name
from engine.group.messages import EngineConfig
from engine.runner import ModelRunner
from engine.transfer.agent import AgentThread
from engine.transfer.commands import AgentInfo, Report


def start_agent(
    config: EngineConfig,
    rank: int,
    runner: ModelRunner,
    report: Callable[[Report], None],
) -> AgentThread | None:
    """The rank's transfer thread, running; None for role both, which moves no KV between engines."""
    if config.role == "both":
        return None
    agent = AgentThread(
        name=agent_name(config.instance, config.incarnation, rank),
        rank=rank,
        pool=runner.pool,
        shape=runner.shape,
        heads=runner.shape.heads(config.tp, rank),
        report=report,
        verify=runner.damage,
        crashed=lambda error: os._exit(Exit.INTERNAL),
    )
    agent.start()
    return agent


def agent_info(agent: AgentThread | None, rank: int) -> AgentInfo:
    """What a peer needs to write into this rank's pool; empty when there is no agent."""
    if agent is None:
        return AgentInfo(rank=rank, metadata=b"", base=0, device=0, heads=(0, 0), pages=0)
    return agent.info
