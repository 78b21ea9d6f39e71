"""A load against an endpoint that answers as it is told: every request is accounted for, every wait ends."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest

from pdctl import contracts
from pdctl.errors import ConfigError, UnreachableError
from pdctl.exits import Exit
from pdctl.flows.load.client import Target
from pdctl.flows.load.endpoint import known
from pdctl.flows.load.plan import Agent, Shape, Turn
from pdctl.flows.load.report import LoadReport, Shot, spread
from pdctl.flows.load.run import Load, Sent, drive, straight
from tests.e2e.stack import free_port
from tests.pdctl.flows.load.endpoint import MODEL, Endpoint, endpoint

SHAPE = Shape(agents=2, seconds=20.0, rounds=3, tokens=8, deadline=10.0)


@pytest.fixture
def server() -> Iterator[Endpoint]:
    with endpoint() as made:
        yield made


def load(server: Endpoint, shape: Shape = SHAPE, seed: int = 0) -> LoadReport:
    return asyncio.run(drive(Target(server.url, MODEL), shape, seed=seed))


def one(server: Endpoint, text: str, deadline: float = 10.0, abort: int | None = None, **more: bool) -> Shot:
    """What becomes of one request with that text."""
    shape = Shape(agents=1, seconds=20.0, rounds=1, deadline=deadline, **more)
    plan = [Agent(0, 0.0, [Turn(text, 8, abort=abort)])]
    (shot,) = asyncio.run(Load(Target(server.url, MODEL), shape, straight, plan=plan).run()).shots
    return shot


def test_conversations_grow_round_by_round(server: Endpoint) -> None:
    report = load(server)
    assert report.ok and [r.ok for r in report.rounds()] == [2, 2, 2] and report.exit() == Exit.OK
    first, second, third = (b["prompt"] for b in server.asked if b["prompt"].startswith(own(server)))
    assert second.startswith(f"{first} w0 w1") and third.startswith(second)
    assert all(s.ttft is not None and s.ttft <= s.seconds and 4 <= s.tokens <= 8 for s in report.shots)
    assert len({shot.id for shot in report.shots}) == 6
    assert contracts.faults("load", report.document()) == []


def own(server: Endpoint) -> str:
    """What the first agent said first."""
    return str(server.asked[0]["prompt"].partition("\nAssistant")[0])


def test_the_same_seed_sends_the_same_bodies() -> None:
    bodies = []
    for seed in (5, 5, 6):
        with endpoint() as server:
            load(server, seed=seed)
            bodies.append(sorted(str(body) for body in server.asked))
    assert bodies[0] == bodies[1] != bodies[2]


def test_a_conversation_begins_anew_within_its_context(server: Endpoint) -> None:
    shape = Shape(agents=1, seconds=20.0, rounds=40, tokens=8, context=256)
    assert load(server, shape).ok
    sizes = [len(body["prompt"]) for body in server.asked]
    assert len(sizes) == 40 and sum(b < a for a, b in itertools.pairwise(sizes)) >= 2
    assert max(sizes) < 256 * 5


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("chat", [True, False])
def test_both_routes_whole_and_as_streams(server: Endpoint, stream: bool, chat: bool) -> None:
    shot = one(server, "Hello", stream=stream, chat=chat)
    assert shot.ok and (shot.ttft is not None) == stream
    # The endpoint gave a whole answer's request another id: the one it is known by counts.
    assert shot.id.endswith("-a0-r1" if stream else "-a0-r1.1")
    assert ("messages" in server.asked[0]) == chat


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("REFUSED", "full", "Nothing is free."),
        ("HTML", "http_502", ""),
        ("BREAKS", "stream_broke", "after 8 pieces"),
        ("LATE", "kv_lost", "Gone."),
    ],
)
def test_a_failure_has_the_code_that_its_endpoint_gave(
    server: Endpoint, text: str, code: str, said: str
) -> None:
    shot = one(server, text)
    assert (shot.code, shot.hung) == (code, False) and said in shot.said
    assert one(server, "EMPTY", stream=False).code == "not_an_answer"


def test_an_endpoint_that_is_gone_fails_each_round_and_is_not_hammered() -> None:
    target = Target(f"http://127.0.0.1:{free_port()}", MODEL)
    report = asyncio.run(drive(target, Shape(agents=2, seconds=1.5)))
    assert set(report.codes) == {"ConnectError"} and 4 <= len(report.shots) <= 10
    assert not report.ok and report.exit() == Exit.FINDINGS
    assert (report.exit("hung"), report.exit("never")) == (Exit.OK, Exit.OK)


def test_a_round_that_does_not_end_is_named_at_its_deadline(server: Endpoint) -> None:
    began = time.monotonic()
    shot = one(server, "HANGS", deadline=0.5)
    assert shot.hung and shot.id.endswith("-a0-r1") and 0.5 <= shot.seconds < 5.0
    assert shot.stands is not None and shot.stands.stage == "no ledger"
    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize(("abort", "stream"), [(0, True), (3, True), (3, False)])
def test_what_is_given_up_on_purpose_is_no_failure(server: Endpoint, abort: int, stream: bool) -> None:
    text = "Hello" if abort and stream else "HANGS"
    shot = one(server, text, abort=abort, stream=stream)
    assert shot.ok and shot.aborted and shot.seconds < 5.0
    assert shot.tokens == (3 if abort and stream else 0)


def test_an_open_loop_does_not_wait_and_turns_away_what_is_too_many() -> None:
    with endpoint(slow=0.6) as server:
        shape = Shape(agents=1, seconds=3.0, rounds=1, rate=10.0, most=3)
        report = load(server, shape)
    assert report.ok and len(report.shots) >= 6 and report.turned_away >= 6
    ends = sorted((s.at, s.at + s.seconds) for s in report.shots)
    assert max(sum(a <= at < b for a, b in ends) for at, _ in ends) == 3


def test_no_round_begins_after_its_seconds(server: Endpoint) -> None:
    report = load(server, Shape(agents=2, seconds=1.0, pause=0.05))
    assert report.ok and report.seconds < 5.0 and max(s.at for s in report.shots) < 1.0


def test_bursts_are_sent_together(server: Endpoint) -> None:
    report = load(server, Shape(agents=3, seconds=3.0, rounds=4, pause=0.2, burst=0.5))
    assert report.ok and all(shot.at % 0.5 < 0.25 for shot in report.shots)
    assert len({shot.at // 0.5 for shot in report.shots}) >= 3


def test_a_recording_that_cannot_be_written_ends_the_load(server: Endpoint) -> None:
    def full(sent: Sent) -> None:
        raise OSError(28, "No space left on device", "rec.jsonl")

    with pytest.raises(OSError, match="No space left"):
        asyncio.run(drive(Target(server.url, MODEL), SHAPE, seen=full))


def test_what_an_endpoint_says_of_itself() -> None:
    with endpoint(length=4096) as server:
        found, length = asyncio.run(known(Target(server.url, ""), straight))
        assert (found.model, length) == (MODEL, 4096)
        with pytest.raises(ConfigError, match="has no model 'ecko'") as caught:
            asyncio.run(known(Target(server.url, "ecko"), straight))
        assert "echo" in caught.value.hint
    with pytest.raises(UnreachableError, match="cannot be reached"):
        asyncio.run(known(Target(f"http://127.0.0.1:{free_port()}", ""), straight))


def test_quantiles_are_values_that_were_seen() -> None:
    of = spread([4.0, None, 1.0, 3.0, 2.0])
    assert (of.count, of.p50, of.p95, of.most) == (4, 2.0, 4.0, 4.0)
    assert spread([]).p50 is None
