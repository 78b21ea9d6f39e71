"""The receiving end of the transfer benchmark: a pool and an agent that is polled, until it is ended."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from engine.core.ids import agent_name, new_incarnation
from engine.core.types import Shape
from engine.transfer.agent import AgentThread
from engine.transfer.commands import AddPeer, Report

# SmolLM2-135M in bfloat16, one rank: a page of 16 tokens is 360 KiB.
SHAPE = Shape(layers=30, kv_heads=3, head_dim=64, page_size=16, itemsize=2)
PAGES = 512


def start_agent(instance: str, report: Callable[[Report], None]) -> tuple[AgentThread, torch.Tensor]:
    """A running transfer thread over a zeroed pool of PAGES pages; `report` gets what it reports."""
    heads = (0, SHAPE.kv_heads)
    pool = torch.zeros(
        PAGES, SHAPE.kv_heads, SHAPE.layers, 2, SHAPE.page_size, SHAPE.head_dim, dtype=torch.bfloat16
    )
    name = agent_name(instance, new_incarnation(), 0)
    thread = AgentThread(name=name, rank=0, heads=heads, shape=SHAPE, pool=pool, report=report)
    thread.start()
    return thread, pool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--info", type=Path, required=True, help="where this agent's info is written")
    args = parser.parse_args()

    def ignore(_: Report) -> None:
        return None

    thread, _pool = start_agent("bench-target", ignore)
    thread.submit(
        AddPeer(peer="source", tp=1, metadata=[], bases=[], devices=[], heads=[], pages=PAGES, write=False)
    )
    part = args.info.with_suffix(".part")
    part.write_bytes(msgspec.msgpack.encode(thread.info))
    part.rename(args.info)
    threading.Event().wait()  # ended by SIGTERM


if __name__ == "__main__":
    main()
