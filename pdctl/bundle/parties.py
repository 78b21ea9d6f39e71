"""One party's documents as its traces; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pdctl.adapters.launch import read as launch
from pdctl.adapters.readings.answers import from_answer
from pdctl.adapters.readings.logs import from_log
from pdctl.adapters.readings.scrape import readings
from pdctl.adapters.signs import TABLE
from pdctl.adapters.stacks import parse as parse_stacks
from pdctl.adapters.traces import Event, Reading, Traces
from pdctl.bundle.layout import Place, What, age_order
from pdctl.bundle.told import PartyTable


@dataclass
class Filed:
    """The documents of one party, by what they are, in the order of their names (which is that of time)."""

    by: dict[What, list[tuple[str, Place, str]]] = field(default_factory=dict)

    def add(self, path: str, place: Place, text: str) -> None:
        self.by.setdefault(place.what, []).append((path, place, text))

    def texts(self, what: What) -> list[str]:
        return [text for _, _, text in self.by.get(what, [])]

    def json(self) -> list[tuple[str, dict[str, Any]]]:
        """(endpoint, document) of every JSON object; what is no JSON is left out."""
        found = []
        for _, place, text in self.by.get(What.JSON, []):
            try:
                document = json.loads(text)
            except ValueError:
                continue
            if isinstance(document, dict | list):
                found.append((place.name, document if isinstance(document, dict) else {"items": document}))
        return found


_KINDS = (
    ("sglang", re.compile(r"sglang[:.]|ServerArgs\(|SGLANG_|sglang\.launch_server|KVPoll\.|#queue-req")),
    ("vllm", re.compile(r"vllm[:.]|VLLM_|vllm serve|EngineCore|Avg generation throughput|expired KV blocks")),
    ("trtllm", re.compile(r"tensorrt_llm|TensorRT-LLM|TRTLLM_|\[TRT-LLM\]")),
)


def kind_of(told: str, filed: Filed, role: str) -> str:
    """As told, else by what its documents are full of; a router is sglang-router or another's."""
    if told:
        return told
    text = "\n".join(t[:20000] for what in filed.by for t in filed.texts(what))
    if role == "router":
        return "sglang-router" if re.search(r"smg_|sglang_router|sgl-router", text) else ""
    counts = {kind: len(pattern.findall(text)) for kind, pattern in _KINDS}
    best = max(counts, key=lambda kind: counts[kind])
    return best if counts[best] else ""


def traces(name: str, role: str, filed: Filed, told: PartyTable, at: float, gap: float) -> Traces:
    """Everything that `filed` and `told` say of one party. `at` is the time of the bundle."""
    documents = filed.json()
    logs = filed.by.get(What.LOG, [])
    events = tuple(_events(name, logs, at))
    settings: dict[str, str] = {}
    for text in filed.texts(What.LOG):
        settings |= launch.from_log(text)
    former: dict[str, str] = {}
    environ: dict[str, str] = {}
    for _, place, text in filed.by.get(What.COMMAND, []):
        argv = launch.words(text)
        found, given = launch.from_command(argv), launch.from_assignments(argv)
        if place.former:
            former |= found | given
        else:
            settings, environ = settings | found, environ | given
    for endpoint, document in documents:
        if endpoint in ("server_info", "get_server_info", "config", "settings"):
            settings |= launch.from_json(document)
    settings |= launch.from_json(told.settings)
    for _, place, text in filed.by.get(What.ENVIRON, []):
        found = launch.from_env(text)
        former, environ = (former | found, environ) if place.former else (former, environ | found)
    version = told.version or settings.get("version", "")
    return Traces(
        kind=kind_of(told.kind, filed, role),
        version=version,
        versions=dict(told.versions),
        settings=settings,
        environ=environ | told.env,
        former=former,
        events=events,
        readings=_readings(filed, documents, told, at, gap),
        stacks=tuple(s for text in filed.texts(What.STACKS) for s in parse_stacks(text)),
        files={place.name: text for _, place, text in filed.by.get(What.FILE, [])},
        health=told.health,
        ended=told.exit,
        restarts=told.restarts,
        started_at=told.started,
        last_transfer_at=told.last_transfer,
        lines=sum(text.count("\n") + 1 for text in filed.texts(What.LOG)),
    )


def _events(name: str, logs: list[tuple[str, Place, str]], at: float) -> Iterator[Event]:
    """Of every log; the files of a rotated one are numbered on."""
    lines: dict[str, int] = {}
    for path, _, text in logs:
        stem = age_order(path)[0]
        yield from TABLE.scan(text, name, path, at, lines.get(stem, 0))
        lines[stem] = lines.get(stem, 0) + text.count("\n") + 1


def _readings(
    filed: Filed, documents: list[tuple[str, dict[str, Any]]], told: PartyTable, at: float, gap: float
) -> tuple[Reading, ...]:
    """Readings of every source, oldest first; scrapes are `gap` apart and the last is the bundle's time."""
    scrapes = filed.texts(What.METRICS)
    first = at - gap * (len(scrapes) - 1)
    found: list[Reading] = [r for text in filed.texts(What.LOG) for r in from_log(text, at)]
    for number, text in enumerate(scrapes):
        found += readings(text, first + number * gap)
    found += _answered(documents, at, gap)
    if told.numbers_before:
        found.append(Reading(at - gap, "hand", told.numbers_before))
    if told.numbers:
        found.append(Reading(at, "hand", told.numbers))
    # A log line without a time is older than what was asked when the bundle was made.
    return tuple(sorted(found, key=lambda r: r.at if r.at is not None else float("-inf")))


def _answered(documents: Iterable[tuple[str, Mapping[str, Any]]], at: float, gap: float) -> list[Reading]:
    by: dict[str, list[Mapping[str, Any]]] = {}
    for endpoint, document in documents:
        by.setdefault(endpoint, []).append(document)
    found: list[Reading] = []
    for endpoint, several in by.items():
        for number, document in enumerate(reversed(several)):
            found += from_answer(endpoint, document, at - number * gap)
    return found
