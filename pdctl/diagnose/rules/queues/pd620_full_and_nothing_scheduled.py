"""PD620: a full pool blocks scheduling, and what would empty it only runs when something is scheduled."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import aborts
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.loads import FULL, at_work
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count


def _gpu(facts: Facts, view: EngineView) -> list[str]:
    host = facts.host(view.member.host)
    utils = [g.util for g in host.traces.gpus if g.util is not None] if host else []
    return [f"GPU utilisation {max(utils):.0f} %: nothing is computed"] if utils and max(utils) < 5 else []


def _asleep(view: EngineView) -> list[str]:
    """Threads of a receiver that sleeps between polls."""
    return [
        f"{view.name}, {s.thread or s.process}: {s.frames[0]}"
        for s in view.traces.stacks
        if s.frames and "sleep" in s.frames[0].lower()
    ]


@rule("PD620", "resource deadlock: full and nothing scheduled", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Many requests are active, none is scheduled and the GPU idles: each waits for room the others hold.

    What it looks like: "Timed out waiting for context KV cache transfer" every second, thousands active,
    0 scheduled, GPU 0 %, health 200. It follows cancels: their clean-up runs only when a new request is
    scheduled. The same with a sender whose KV is full and a receiver that sleeps instead of posting
    receives.

    What else it could be: a collective that hangs keeps the GPU at 100 % with low power. Decode at its cap
    makes tokens.

    What to do: restart the stuck side, `pdctl restart NAME`; take a build that cleans up in each iteration,
    and bound the cancels.
    """
    for view in facts.engines:
        seen = view.traces
        stuck = [e for e in seen.of("trtllm.scheduled") if e.values.get("scheduled") == "0"]
        waits = list(seen.of("trtllm.context_wait"))
        last = list(seen.of("trtllm.scheduled"))[-1:]
        if stuck and last == stuck[-1:] and int(stuck[-1].values.get("active", 0)) > 0 and waits:
            active = int(stuck[-1].values["active"])
            yield rule.finding(
                view.name,
                f"{view.name} is in a resource deadlock: {count(active, 'request is', 'requests are')} "
                "active, none is scheduled, and timed-out transfers are only cleaned up when one is.",
                [*quoted(stuck[-1:]), *quoted(waits, 1), *_gpu(facts, view), *aborts.evidence(seen)],
                f"pdctl restart {view.name}",
                since=since(waits),
            )
            continue
        usage = seen.last("kv_usage")
        full = view.role == "prefill" and usage is not None and usage >= FULL and not at_work(seen)
        for decode in facts.engines if full else ():
            asleep = _asleep(decode) if decode.role == "decode" and not decode.traces.last("running") else []
            if asleep:
                yield rule.finding(
                    f"{view.name} -> {decode.name}",
                    f"{decode.name} sleeps between polls and posts no receives while {view.name} is full of "
                    "KV that waits to be received: sender full, receiver asleep.",
                    [f"{view.name}: KV {usage:.0%} in use, nothing computed", *asleep[:2]],
                    f"pdctl restart {decode.name}",
                    touches=[view.name, decode.name],
                )
