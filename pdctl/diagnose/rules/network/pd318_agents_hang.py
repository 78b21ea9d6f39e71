"""PD318: NIXL agents hang while they open their backend."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_FRAMES = (
    "uct_md_query_tl_resources",
    "uct_md_open",
    "ucp_init",
    "createBackend",
    "create_backend",
    "_NixlAgent",
    "nixl_agent",
)


@rule("PD318", "NIXL agents hang in createBackend", Severity.ERROR, ["stacks"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Opening the UCX backend never returns, when several agents of a host do it at the same time.

    What it looks like: engines that start together hang before they register memory; their resident memory
    grows steadily; a stack shows uct_md_query_tl_resources below createBackend. One agent alone starts.

    What else it could be: loading weights also takes long, but its stack is in the loader and GPU memory
    grows. NIXL agents that start slowly and do start want CPU.

    What to do: take another NIXL or UCX. Starting one after another is a workaround to test.
    """
    stuck = [(p, _frame(p)) for p in facts.parties if _frame(p)]
    if not stuck:
        return
    names = [p.name for p, _ in stuck]
    hosts = {p.member.host for p, _ in stuck}
    lines = [f"{p.name}: a thread is in {frame}" for p, frame in stuck]
    for party, _ in stuck:
        grown = party.traces.moved("rss_bytes")
        if grown:
            lines.append(f"{party.name}: resident memory grew by {grown / (1 << 20):.0f} MiB")
        version = party.traces.versions
        lines += [f"{party.name}: {n} {version[n]}" for n in ("nixl", "ucx") if n in version]
    together = " and ".join(sorted(hosts)) if len(names) > 1 else ""
    yield rule.finding(
        listed(names),
        f"{listed(names)} {'hang' if len(names) > 1 else 'hangs'} while NIXL opens its UCX backend"
        + (f"; they started together on {together}." if together else "."),
        [*lines, *quoted([e for p, _ in stuck for e in p.traces.of("nixl.creating")][:2])],
        "take another NIXL or UCX; as a test, start them one after another",
        touches=names,
        since=min((p.traces.started_at for p, _ in stuck if p.traces.started_at), default=None),
    )


def _frame(party: Party) -> str:
    """The frame that shows it, of a server that has not come up."""
    if any(party.traces.of("net.ready")):
        return ""
    for stack in party.traces.stacks:
        text = "\n".join(stack.frames)
        if any(f in text for f in (_FRAMES[0], *_FRAMES[3:])):
            return next(f for f in _FRAMES if f in text)
    return ""
