"""What a user of the pair gets: the single engine's answers, streamed, sampled, stopped, under pressure."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.core.errors import Exit
from tests.e2e.stack import Stack, stack, wait_for

QUESTION = [{"role": "user", "content": "What is gravity? Answer in two sentences."}]


def chat(stack_: Stack, name: str, **options: object) -> dict[str, Any]:
    body = {"messages": QUESTION, "max_tokens": 40, "temperature": 0, **options}
    answer = httpx.post(f"{stack_[name].url}/v1/chat/completions", json=body, timeout=60.0)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def streamed(stack_: Stack, name: str, **options: object) -> tuple[str, str, dict[str, Any]]:
    """Text, finish reason and usage of a streamed chat."""
    body = {
        "messages": QUESTION,
        "max_tokens": 40,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **options,
    }
    text, finish, usage = "", "", {}
    with httpx.stream("POST", f"{stack_[name].url}/v1/chat/completions", json=body, timeout=60.0) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        event = json.loads(line.removeprefix("data: "))
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            text += choice["delta"].get("content") or ""
            finish = choice["finish_reason"] or finish
    return text, finish, usage


def test_the_answer_is_english_and_streams_as_it_is(pair: Stack) -> None:
    whole = chat(pair, "router")
    text = whole["choices"][0]["message"]["content"]
    assert text.startswith("Gravity is a fundamental concept in physics")
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert streamed(pair, "router") == (text, "stop", whole["usage"])
    assert whole["usage"]["prompt_tokens"] > 30


def test_a_stop_string_ends_the_text_before_it(pair: Stack) -> None:
    text, finish, _ = streamed(pair, "router", stop=["force of gravity"])
    assert finish == "stop"
    assert text == "Gravity is a fundamental concept in physics that describes the "
    pair.baseline("prefill-0", "decode-0")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_seed_gives_the_single_engines_sample(pair: Stack, seed: int) -> None:
    options = {"temperature": 0.9, "top_p": 0.95, "seed": seed}
    mine = chat(pair, "router", **options)["choices"][0]["message"]["content"]
    assert mine == chat(pair, "single", **options)["choices"][0]["message"]["content"]
    assert mine != chat(pair, "router", **(options | {"seed": seed + 10}))["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    ("body", "status", "names"),
    [
        ({"messages": []}, 400, "messages"),
        ({"messages": QUESTION, "max_tokens": 0}, 400, "max_tokens"),
        ({"messages": QUESTION, "temperature": "hot"}, 400, "temperature"),
        ({"messages": QUESTION, "model": "nope"}, 404, "'nope' is not served here; this is 'smollm2'"),
        ({"messages": [{"role": "user", "content": "word " * 9000}]}, 400, "window"),
    ],
)
def test_a_bad_request_is_a_sentence(pair: Stack, body: dict[str, Any], status: int, names: str) -> None:
    answer = httpx.post(f"{pair['router'].url}/v1/chat/completions", json=body, timeout=30.0)
    assert answer.status_code == status
    assert names in answer.json()["error"]["message"]
    pair.baseline("prefill-0", "decode-0")


def test_a_wrong_admin_call_is_a_400_and_changes_nothing(pair: Stack) -> None:
    headers = {"Authorization": f"Bearer {pair.token}", "X-Drill-Token": pair.drill}
    before = pair["prefill-0"].state()["timeouts"]
    for verb, body, code in [
        ("timeouts", {"inflight": 7, "infligth": 1}, "unknown_timeout"),
        ("timeouts", {"inflight": 7, "queue": "soon"}, "bad_value"),
        ("timeouts", {"start": 7}, "not_live"),
        ("faults", {"name": "lose-dne", "armed": True}, "unknown_fault"),
    ]:
        answer = httpx.post(f"{pair['prefill-0'].url}/admin/{verb}", json=body, headers=headers, timeout=10.0)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert pair.admin("prefill-0", "timeouts") == before


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_follows_a_schema_over_a_pair_as_on_one_engine(pair: Stack, stream: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    options: dict[str, Any] = {"response_format": form, "max_tokens": 60}
    wanted = chat(pair, "single", **options)["choices"][0]
    assert set(json.loads(wanted["message"]["content"])) == {"name", "age"}
    if stream:
        text, finish, _ = streamed(pair, "router", **options)
    else:
        choice = chat(pair, "router", **options)["choices"][0]
        text, finish = choice["message"]["content"], choice["finish_reason"]
    assert (text, finish) == (wanted["message"]["content"], "stop")
    bad = {"messages": QUESTION, "guided_json": {"type": "objekt"}}
    refused = httpx.post(f"{pair['router'].url}/v1/chat/completions", json=bad, timeout=60.0)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "guided_json")


def test_several_answers_over_a_pair_share_their_prompt(pair: Stack) -> None:
    options: dict[str, Any] = {"n": 3, "max_tokens": 12, "seed": 7, "temperature": 1.0}
    before = pair["prefill-0"].state()["counters"]
    over, alone = chat(pair, "router", **options), chat(pair, "single", **options)
    texts = [choice["message"]["content"] for choice in over["choices"]]
    assert texts == [choice["message"]["content"] for choice in alone["choices"]] and len(set(texts)) == 3
    assert over["usage"]["completion_tokens"] == alone["usage"]["completion_tokens"]
    pair.baseline("prefill-0", "decode-0", "single")
    after = pair["prefill-0"].state()["counters"]
    assert after["requests_done"] - before["requests_done"] == 3
    assert after["prefix_tokens_hit"] - before["prefix_tokens_hit"] >= 2 * 32, "two pages, for two of them"


def test_a_conversation_that_grows_is_not_computed_twice(pair: Stack) -> None:
    history: list[int] = list(range(1000, 1200))
    for turn in range(3):
        before = pair["prefill-0"].state()["counters"]
        said = pair.ids("router", history, 8)
        assert said == pair.ids("single", history, 8)
        after = pair["prefill-0"].state()["counters"]
        hit = after["prefix_tokens_hit"] - before["prefix_tokens_hit"]
        assert hit >= (len(history) - 24) // 16 * 16 if turn else hit == 0
        history += [*said, *range(2000 + turn, 2008 + turn)]
    pair.baseline("prefill-0", "decode-0")


def together(stack_: Stack, name: str, prompts: list[str], tokens: int) -> list[list[int]]:
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda p: stack_.ids(name, p, tokens), prompts))


def test_preempted_sequences_lose_nothing(fresh: Stack, pair: Stack) -> None:
    """A pool of 13 pages cannot hold four answers of 76 tokens; recomputed ones must come out the same."""
    prompts = [f"Agent {i} counts: one two three four five six" for i in range(4)]
    wanted = together(pair, "single", prompts, 64)
    fresh.engine("prefill-0", "prefill")
    fresh["prefill-0"].wait_ready()
    fresh.engine("decode-0", "decode", pages=14)
    fresh["decode-0"].wait_ready()
    fresh.router().wait_ready()
    assert together(fresh, "router", prompts, 64) == wanted
    assert fresh["decode-0"].state()["counters"]["preemptions"] > 0
    fresh.baseline("prefill-0", "decode-0")


@pytest.mark.slow
def test_bfloat16_pair_equals_bfloat16_single(tmp_path: Path, smollm: Path) -> None:
    with stack(tmp_path, smollm) as s:
        s.engine("single", "both", dtype="bfloat16").wait_ready()
        wanted = [s.ids("single", p, 24) for p in ("Paris is", "def add(a, b):")]
        s["single"].end()
        del s.processes["single"]
        s.engine("prefill-0", "prefill", dtype="bfloat16").wait_ready()
        s.engine("decode-0", "decode", dtype="bfloat16").wait_ready()
        s.router().wait_ready()
        assert [s.ids("router", p, 24) for p in ("Paris is", "def add(a, b):")] == wanted


def test_a_stopped_engine_says_so_to_what_it_does_not_finish(fresh: Stack) -> None:
    fresh.engine("single", "both", env={"PD_DRAIN_TIMEOUT": "0"}).wait_ready()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(fresh.complete, "single", "Count:", 2000)
        wait_for("the request to run", lambda: fresh["single"].state()["queues"]["running"]["depth"])
        assert fresh["single"].end() == 0
        assert (answer.result().status_code, answer.result().json()["error"]["code"]) == (503, "draining")


def test_ranks_that_are_not_up_in_time_end_their_engine(fresh: Stack) -> None:
    late = fresh.engine("single", "both", env={"PD_START_TIMEOUT": "0.2"})
    wait_for("the engine to end", lambda: late.popen is not None and late.popen.poll() is not None)
    assert late.popen is not None and late.popen.returncode == Exit.RANK_FROZEN
    assert "single ends: not up after PD_START_TIMEOUT=0.2 s (exit 72 RANK_FROZEN)" in late.tail()
