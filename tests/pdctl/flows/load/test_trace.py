"""Traces: what is recorded can be replayed, and what is no trace is told with file and line."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest

from pdctl.errors import ConfigError
from pdctl.flows.load import trace
from pdctl.flows.load.client import Target
from pdctl.flows.load.plan import Shape, Turn
from pdctl.flows.load.run import Load, drive, straight
from tests.pdctl.flows.load.endpoint import MODEL, endpoint


def written(folder: Path, *rows: object) -> Path:
    path = folder / "t.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows) + "\n")
    return path


def test_agents_are_in_order_of_arrival_and_sizes_become_texts(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"at": 2, "agent": "b", "prompt": "later", "max_tokens": 3},
        {"at": 0.5, "agent": "b", "prompt": [1, 2], "max_tokens": 4},
        "",
        {"at": 0, "prompt_tokens": 160, "max_tokens": 5, "unknown": True},
        {"at": 0, "prompt": [{"role": "user", "content": "hi"}], "max_tokens": 6},
    )
    first, second, third = trace.read(path, 0)
    (sized,) = first.turns
    assert isinstance(sized.text, str) and len(sized.text.split()) == 100
    assert next(iter(second.turns)).text == [{"role": "user", "content": "hi"}]
    assert list(third.turns) == [
        Turn([1, 2], 4, at=0.5, whole=True),
        Turn("later", 3, at=2.0, whole=True),
    ]
    assert (third.at, trace.lasts([first, second, third])) == (0.5, 2.0)
    assert trace.read(path, 0)[0] == first and trace.read(path, 1)[0] != first


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "t.jsonl:2: it is no JSON"),
        ("[1]", "t.jsonl:2: it is no object"),
        ({"prompt": "a", "max_tokens": 1}, 't.jsonl:2: "at" is missing'),
        ({"at": -1, "prompt": "a", "max_tokens": 1}, '"at" is -1; it is a number of 0 to 10000000.'),
        ({"at": True, "prompt": "a", "max_tokens": 1}, '"at" is True'),
        ({"at": 0, "prompt": "a", "max_tokens": "many"}, "\"max_tokens\" is 'many'"),
        ({"at": 0, "max_tokens": 1}, '"prompt_tokens" is missing'),
        ({"at": 0, "prompt": ["a"], "max_tokens": 1}, '"prompt" is neither a text'),
    ],
)
def test_what_is_no_request_is_told_with_its_line(tmp_path: Path, row: object, said: str) -> None:
    good = {"at": 0, "prompt": "a", "max_tokens": 1}
    with pytest.raises(ConfigError) as caught:
        trace.read(written(tmp_path, good, row), 0)
    assert said in caught.value.message


def test_an_empty_trace_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no request in it"):
        trace.read(written(tmp_path, "", "  "), 0)


def test_a_recording_is_replayed_request_by_request(tmp_path: Path) -> None:
    with endpoint() as server:
        target = Target(server.url, MODEL)
        out = io.StringIO()
        shape = Shape(agents=2, seconds=10.0, rounds=3, tokens=6)
        asyncio.run(drive(target, shape, seed=3, seen=trace.Recorder(out)))
        before = [body["prompt"] for body in server.asked]
        path = written(tmp_path, out.getvalue())
        plan = trace.read(path, 0)
        server.asked.clear()
        report = asyncio.run(Load(target, shape, straight, plan=plan, trace=str(path)).run())
        assert report.ok and sorted(b["prompt"] for b in server.asked) == sorted(before)
        assert [len(list(agent.turns)) for agent in plan] == [3, 3]
