"""What decode goes on from is what prefill had: KV bit for bit, the first token, its log probabilities."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.e2e.stack import Stack, wait_for

# Four pages of 16 tokens. Attention does not see an order of whole pages, so the last one is not full and
# what the answer needs is at the end of the first one. Each fault has its own number: a page's unused slots
# may hold that of an earlier prompt.
ASKED = "Remember this: the secret code of today is"
NUMBER = {"corrupt-page": "7391", "swap-pages": "2648", "": "5064"}


def prompt(fault: str = "") -> str:
    filler = "The quick brown fox jumps over the lazy dog. " * 3
    return f"{ASKED} {NUMBER[fault]} and nothing else. {filler}{ASKED}"


PROMPT = prompt()
SEEDED = {"seed": 11, "temperature": 0.9, "top_p": 0.95, "top_k": 40}


def counters(pair: Stack, name: str) -> dict[str, Any]:
    return dict(pair[name].state()["counters"])


def unserved(pair: Stack) -> int:
    """Legs of prefill that failed by decode's word, or that the router ended when decode had failed."""
    found = counters(pair, "prefill-0")
    return int(found["requests_failed"].get("kv_corrupt", 0) + found["requests_aborted"])


def failed_by(pair: Stack, at: str, fault: str, value: float = 0) -> dict[str, Any]:
    """The error of a request under a fault, with checksums on."""
    pair.admin(at, "faults", name=fault, armed=True, count=1, value=value)
    answer = pair.complete("router", prompt(fault))
    assert answer.status_code == 502, answer.text
    return dict(answer.json()["error"])


@pytest.mark.parametrize(("at", "fault"), [("decode-0", "corrupt-page"), ("prefill-0", "swap-pages")])
def test_kv_that_changed_on_the_way_is_an_error_and_never_an_answer(pair: Stack, at: str, fault: str) -> None:
    right = pair.ids("single", prompt(fault))
    before = counters(pair, "decode-0")
    ended = unserved(pair)

    pair.admin("decode-0", "timeouts", checksum=0)
    pair.admin(at, "faults", name=fault, armed=True, count=1, value=1)
    assert pair.ids("router", prompt(fault)) != right, "the fault is real: unchecked, it makes a wrong answer"

    pair.admin("decode-0", "timeouts", checksum=1)
    error = failed_by(pair, at, fault, 1)
    assert error["code"] == "kv_corrupt", error
    if fault == "corrupt-page":
        assert "page 1 (tokens 16..31), layers 12..15." in error["message"]
    else:
        assert "page 0 (tokens 0..15), layers 0..29; page 3 (tokens 48..63), layers" in error["message"]
    pair.baseline("prefill-0", "decode-0")
    wait_for("prefill to have counted its leg", lambda: unserved(pair) > ended)
    assert pair["decode-0"].log.read_text().count("kv_corrupt room=") >= 1

    assert pair.ids("router", prompt(fault)) == right
    after = counters(pair, "decode-0")
    assert after["kv_corrupt"] == before["kv_corrupt"] + 1
    assert after["kv_verified"] == before["kv_verified"] + 1
    metrics = httpx.get(f"{pair['decode-0'].url}/metrics", timeout=5).text
    assert f'pd_kv_checked_total{{result="corrupt"}} {after["kv_corrupt"]}.0' in metrics
    pair.admin("decode-0", "timeouts", checksum=0)


def test_a_switch_is_zero_or_one(pair: Stack) -> None:
    headers = {"Authorization": f"Bearer {pair.token}"}
    answer = httpx.post(f"{pair['decode-0'].url}/admin/timeouts", json={"checksum": 0.5}, headers=headers)
    assert answer.status_code == 400 and "0 or 1" in answer.json()["error"]["message"]


def choices(pair: Stack, name: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Text, ids and log probabilities of an answer or, put together, of its events."""
    answer = httpx.post(f"{pair[name].url}{path}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    if body.get("stream"):
        parts = [p.removeprefix("data: ") for p in answer.text.split("\n\n")]
        found = [json.loads(p)["choices"][0] for p in parts if p.startswith("{")]
    else:
        found = [answer.json()["choices"][0]]
    texts = [c.get("text") or (c.get("message") or c.get("delta") or {}).get("content") or "" for c in found]
    return {"text": "".join(texts), "logprobs": [c["logprobs"] for c in found if c["logprobs"]]}


def numbers(document: Any) -> list[float]:
    """Every number that is a log probability, in order."""
    if isinstance(document, float):
        return [document]
    values = document.values() if isinstance(document, dict) else document
    return [n for v in values if isinstance(v, float | dict | list) for n in numbers(v)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": PROMPT, "logprobs": 3, "max_tokens": 8, **SEEDED}),
        ("/v1/completions", {"prompt": PROMPT, "logprobs": 2, "max_tokens": 8, "temperature": 0}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8, "logprobs": True,
             "top_logprobs": 3, "stop": "zzz", **SEEDED},
        ),
    ],
    ids=["seeded", "greedy", "chat"],
)  # fmt: skip
def test_a_pair_goes_on_as_a_single_engine_would(
    pair: Stack, path: str, body: dict[str, Any], stream: bool
) -> None:
    single = choices(pair, "single", path, body)
    through = choices(pair, "router", path, {**body, "stream": stream})
    assert through["text"] == single["text"] and single["text"]
    if path == "/v1/completions":
        (whole,) = single["logprobs"]
        tokens = [t for part in through["logprobs"] for t in part["tokens"]]
        assert tokens == whole["tokens"] and len(tokens) == 8
        assert [o for part in through["logprobs"] for o in part["text_offset"]] == whole["text_offset"]
    else:
        content = [entry for part in through["logprobs"] for entry in part["content"]]
        assert [e["token"] for e in content] == [e["token"] for e in single["logprobs"][0]["content"]]
        assert all(entry["logprob"] <= 0 and len(entry["top_logprobs"]) == 3 for entry in content)
    if not stream:
        found, wanted = numbers(through["logprobs"]), numbers(single["logprobs"])
        assert len(wanted) >= 8 and found == pytest.approx(wanted, abs=2e-3)
