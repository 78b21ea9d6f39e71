"""PD531: what the prefill sends under one key, decode waits for under another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.callsites import receiving
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_LONG = 16  # characters that two names of one request share
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
        start = _shared(_key(first), _key(near))
        yield rule.finding(
            f"{prefill.name} -> {decode.name}",
            f"{prefill.name} sends KV under another name than {decode.name} waits for: it differs from "
            f"“{_key(near)[start:][:24]}” and “{_key(first)[start:][:24]}” on, which each engine adds.",
            [
                *quoted([near], 1),
                *quoted([e for e, _ in lost], 2),
                *([f"{decode.name} stands in {at}"] if (at := receiving(decode.traces)) else []),
            ],
            "set VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1 on both, or upgrade both; then restart the pair",
            touches=[prefill.name, decode.name],
            since=since([e for e, _ in lost]),
        )


def _key(event: Event) -> str:
    """Without the layer: all layers of a request are sent one by one."""
    return _LAYER.sub("", event.values["key"])


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _near(event: Event, sent: Iterable[Event]) -> Event | None:
    """What was sent for the same request: its name begins as this one does, nearly to the end."""
    key = _key(event)
    shared = [(_shared(key, _key(e)), e) for e in sent]
    best, found = max(shared, key=lambda pair: pair[0], default=(0, None))
    return found if best >= max(_LONG, len(key) // 2) else None
