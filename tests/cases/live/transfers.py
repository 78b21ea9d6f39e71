"""Transfers that stall, lose a message or crawl, and peers that are not whom one takes them for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import tomlkit

from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.drill.catalogue import DRILLS
from pdctl.flows.drill.kind import Scene
from pdctl.flows.drill.requests import Requests
from tests.cases.live.fleet import START, Fleet
from tests.cases.live.row import row

# Longer than the settling time of the ledger.
OLD = 4.0


def aged(fleet: Fleet, name: str, stage: str) -> list[str]:
    """Requests that are in `stage` of an engine for longer than a healthy one is."""
    return [
        r["id"]
        for r in fleet.state(name).get("requests", [])
        if r["stage"] == stage and r["stage_age_s"] > OLD
    ]


def drilled(fleet: Fleet, name: str) -> Iterator[str]:
    """The product's own drill, up to its evidence; what it leaves is cleared with every row."""
    made = fleet.ctx.fleet
    drill = DRILLS[name]
    scene = Scene(fleet.ctx, made.engine("prefill-0"), made.engine("decode-0"), None, Requests(fleet.ctx))
    scene.state = fleet.state(drill.subject(scene).name)
    scene.record = drill.prepare(scene)
    drill.inject(scene)
    scene.sent.send()
    yield fleet.wait(f"{name} acts", lambda: drill.evidence(scene))


_EDGE = "prefill-0 -> decode-0"
for _title, _name, _code, _subject, _says in (
    ("stalled transfer", "stall-transfer", "PD602", _EDGE, "stalled"),
    ("lost Want", "lose-want", "PD602", _EDGE, "Want was lost"),
    ("lost Done", "lose-done", "PD602", _EDGE, "Done was lost"),
    ("slow transfers, armed", "slow-transfer", "PD606", "prefill-0", "slow-transfer is armed"),
    ("every post fails, armed", "fail-post", "PD606", "prefill-0", "fail-post is armed"),
    ("pages refused, armed", "refuse-pages", "PD606", "decode-0", "refuse-pages is armed"),
    ("decode makes no step, armed", "stop-steps", "PD606", "decode-0", "stop-steps is armed"),
):
    row(_title, _code, subject=_subject, says=_says)(partial(drilled, name=_name))


@row("decode saturated")
def saturated(fleet: Fleet) -> Iterator[str]:
    fleet.send(14, tokens=160)
    ids = fleet.wait("requests wait for pages", lambda: aged(fleet, "decode-0", "waiting"))
    yield f"{len(ids)} requests wait for pages on decode-0 for over {OLD:g} s"


@row("decode restarted alone, legacy-bootstrap", "PD501", subject="prefill-0 -> decode-0", says="restart")
def stale_peer(fleet: Fleet) -> Iterator[str]:
    path = fleet.folder / "fleet.toml"
    before = path.read_text()
    document = tomlkit.parse(before)
    document["cells"]["a"]["engines"]["prefill-0"]["legacy_bootstrap"] = True
    path.write_text(tomlkit.dumps(document))
    try:
        fleet.pdctl("deploy", "--yes", timeout=2 * START)
        fleet.restart("decode-0")
        fleet.send(2)
        ids = fleet.wait("requests hang", lambda: aged(fleet, "prefill-0", "inflight"))
        yield f"decode-0 was restarted alone; {', '.join(ids)} inflight for over {OLD:g} s"
    finally:
        path.write_text(before)
    fleet.pdctl("deploy", "--yes", timeout=2 * START)
    with suppress(Exception):
        fleet.ctx = Context(load_fleet(path))
