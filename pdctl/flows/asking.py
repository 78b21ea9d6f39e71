"""Ask a host of the fleet for facts, whatever the way to it."""

from __future__ import annotations

from pdctl.facts.ask import DEADLINE, Answers, Request, ask
from pdctl.flows.context import Context


def ask_host(ctx: Context, host: str, request: Request, deadline: float = DEADLINE) -> Answers:
    """One round trip; PdctlError when the host cannot be asked."""
    return ask(ctx.transport(host), ctx.fleet.hosts[host].tool_python, request, deadline)
