"""Transfers that stall, lose a message or crawl, and peers that are not whom one takes them for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import tomlkit

from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
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


def pinned(fleet: Fleet, point: str, count: int) -> Iterator[str]:
    """The point is spent when it has acted: nothing is armed any more when the verdict is asked."""
    before = fleet.hits("prefill-0", point)
    fleet.arm("prefill-0", point, count)
    fleet.send(count)
    ids = fleet.wait("a pinned request", lambda: aged(fleet, "prefill-0", "inflight"))
    acted = fleet.hits("prefill-0", point) - before
    yield f"{point} acted {acted} times and is not armed; {', '.join(ids)} inflight for over {OLD:g} s"


row("stalled transfer", "PD602", subject="prefill-0 -> decode-0", says="stalled")(
    partial(pinned, point="stall-transfer", count=2)
)
row("lost Want", "PD602", subject="prefill-0 -> decode-0", says="Want was lost")(
    partial(pinned, point="lose-want", count=1)
)
row("lost Done", "PD602", subject="prefill-0 -> decode-0", says="Done was lost")(
    partial(pinned, point="lose-done", count=1)
)


@row("slow transfers, armed", "PD606", subject="prefill-0", says="slow-transfer is armed")
def slow(fleet: Fleet) -> Iterator[str]:
    before = fleet.hits("prefill-0", "slow-transfer")
    fleet.arm("prefill-0", "slow-transfer", count=0, value=8.0)
    fleet.send(2)
    fleet.wait("it acts", lambda: fleet.hits("prefill-0", "slow-transfer") > before)
    yield f"slow-transfer acted {fleet.hits('prefill-0', 'slow-transfer') - before} times"


@row("pages refused, armed", "PD606", subject="decode-0", says="refuse-pages is armed")
def refused(fleet: Fleet) -> Iterator[str]:
    fleet.arm("decode-0", "refuse-pages", count=0)
    fleet.send()
    ids = fleet.wait("a request waits for pages", lambda: aged(fleet, "decode-0", "waiting"))
    yield f"{ids[0]} waits for pages for over {OLD:g} s, all are free"


@row("decode makes no step, armed", "PD606", subject="decode-0", says="stop-steps is armed")
def no_steps(fleet: Fleet) -> Iterator[str]:
    fleet.arm("decode-0", "stop-steps", count=0)
    fleet.send()
    yield "stop-steps is armed on decode-0 and " + fleet.wait(
        "a request that no step serves",
        lambda: next(
            (
                f"{r['id']} is {r['stage']}"
                for r in fleet.state("decode-0").get("requests", [])
                if r["age_s"] > 12
            ),
            "",
        ),
    )


@row("every post fails, armed", "PD606", subject="prefill-0", says="fail-post is armed")
def posts_fail(fleet: Fleet) -> Iterator[str]:
    before = fleet.hits("prefill-0", "fail-post")
    fleet.arm("prefill-0", "fail-post", count=0)
    fleet.send()
    fleet.wait("posts fail", lambda: fleet.hits("prefill-0", "fail-post") > before)
    yield f"fail-post acted {fleet.hits('prefill-0', 'fail-post') - before} times"


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
