"""PD531: what the prefill sends under one key, decode waits for under another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from os.path import commonprefix

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_LONG = 16  # characters that two names of one request share
_IN_RECEIVE = re.compile(
    r"(?i)\b(?:recv|receive|wait_for|start_load)_?(?:tensor|kv|layer|blocks?)\w*\b.*(?:connector|kv_transfer|p2p)"
)
_LAYER = re.compile(r"#.*$")


@rule("PD531", "KV is sent under another key", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Connectors that find KV by a name derived from the request id need the same name on both sides.

    What it looks like: the prefill answers well and has sent; decode waits for ever in a receive, inside a
    step, with one request running and no token; the names in both logs are the same but for their end, which
    each engine made itself (a random suffix, a counter, a rank).

    What else it could be: KV that was never sent leaves no line on the prefill. Names that have nothing in
    common are two requests.

    What to do: have both sides keep the request id as it came: VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1 on
    both, or an engine whose connector uses the id of the transfer.
    """
    for prefill, decode in facts.edges():
        sent, wanted = list(prefill.traces.of("kv.key_sent")), list(decode.traces.of("kv.key_wanted"))
        have = {_key(e) for e in sent}
        lost = [(e, near) for e in wanted if _key(e) not in have and (near := _near(e, sent)) is not None]
        if not lost or any(_key(e) in have for e in wanted):
            continue
        first, near = lost[0]
        start = len(commonprefix([_key(first), _key(near)]))
        yield rule.finding(
            f"{prefill.name} -> {decode.name}",
            f"{prefill.name} sends KV under another name than {decode.name} waits for: the names differ from "
            f"“{_key(near)[start:][:24]}” and “{_key(first)[start:][:24]}” on, which each engine adds itself.",
            [*quoted([near], 1), *quoted([e for e, _ in lost], 2), *_waits(decode)],
            "set VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1 on prefill and decode, or upgrade both; restart the pair",
            touches=[prefill.name, decode.name],
            since=since([e for e, _ in lost]),
        )


def _key(event: Event) -> str:
    """Without the layer: all layers of a request are sent one by one."""
    return _LAYER.sub("", event.values["key"])


def _near(event: Event, sent: Iterable[Event]) -> Event | None:
    """What was sent for the same request: its name begins as this one does, nearly to the end."""
    key = _key(event)
    shared = [(len(commonprefix([key, _key(e)])), e) for e in sent]
    best, found = max(shared, key=lambda pair: pair[0], default=(0, None))
    return found if best >= max(_LONG, len(key) // 2) else None


def _waits(decode: EngineView) -> list[str]:
    """Frames of its stacks that stand in a receive."""
    frames = [f for s in decode.traces.stacks for f in s.frames if _IN_RECEIVE.search(f)]
    return [f"{decode.name} stands in {frames[0]}"] if frames else []
