"""An abort at any stage, from the client or an admin, returns every page on both sides to baseline."""

from __future__ import annotations

import http.client
import json

import pytest

from tests.e2e.stack import Stack, wait_for

LONG_PROMPT = "word " * 1200

CASES = [
    # fault that holds the request there, engine that shows it, stage, prompt
    (("prefill-0", "stall-transfer"), "prefill-0", "inflight", "short"),
    (("prefill-0", "stall-transfer"), "decode-0", "preallocated", "short"),
    (("decode-0", "refuse-pages"), "decode-0", "waiting", "short"),
    (None, "prefill-0", "prefilling", LONG_PROMPT),
    (None, "decode-0", "running", "short"),
]


class Client:
    """A streaming client on a raw connection that can be closed from outside at any moment."""

    def __init__(self, url: str, request_id: str, prompt: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        params = {"max_new_tokens": 400, "temperature": 0, "ignore_eos": True}
        body = json.dumps({"text": prompt, "stream": True, "sampling_params": params})
        headers = {"Content-Type": "application/json", "X-Request-ID": request_id}
        self.connection = http.client.HTTPConnection(host, int(port), timeout=30.0)
        self.connection.request("POST", "/generate", body, headers)

    def leave(self) -> None:
        self.connection.close()

    def end(self) -> bytes:
        """The rest of the answer; fails with a timeout when the request hangs."""
        return self.connection.getresponse().read()


@pytest.mark.parametrize("how", ["client", "prefill", "decode", "router"])
@pytest.mark.parametrize(("fault", "engine", "stage", "prompt"), CASES)
def test_abort_returns_pages(
    pair: Stack, how: str, fault: tuple[str, str] | None, engine: str, stage: str, prompt: str
) -> None:
    if fault:
        pair.admin(fault[0], "faults", name=fault[1], armed=True)
    request_id = f"abort-{how}-{engine}-{stage}"
    client = Client(pair["router"].url, request_id, prompt)

    def seen() -> bool:
        requests = pair[engine].state()["requests"]
        return any(r["id"] == request_id and r["stage"] == stage for r in requests)

    try:
        wait_for(f"a request {stage} on {engine}", seen, every=0.01)
        if how == "client":
            client.leave()
        else:
            pair.admin("router" if how == "router" else f"{how}-0", "abort", id=request_id)
            client.end()
        pair.baseline("prefill-0", "decode-0")
    finally:
        if fault:
            pair.admin(fault[0], "faults", name=fault[1], armed=False)
    assert pair.complete("router", "Still serving?", 4).status_code == 200
