"""An OpenAI-compatible endpoint whose prompts say how it should answer: real sockets, no model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "echo"


class Endpoint(ThreadingHTTPServer):
    """`asked` are the bodies so far. `length` is its model's; `slow` seconds pass before each answer.

    A prompt with one of these words is answered so: HANGS never, REFUSED 503 with a code, HTML 502 without,
    BREAKS a stream without an end, LATE an error within the stream, EMPTY a document without choices.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, length: int | None, slow: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.length, self.slow = length, slow
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()

    def handle_error(self, *where: object) -> None:
        """A client that has gone is what some tests are about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def endpoint(length: int | None = None, slow: float = 0.0) -> Iterator[Endpoint]:
    server = Endpoint(length, slow)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def log_message(self, *said: object) -> None:
        pass

    def _json(self, status: int, document: object) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Request-ID", self.headers.get("X-Request-ID", "") + ".1")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._json(200, {"data": [{"id": MODEL, "max_model_len": self.server.length}]})
        else:
            self._json(404, {"error": {"code": "not_found", "message": "no"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.headers.append(dict(self.headers))
        prompt = json.dumps(body.get("messages") or body["prompt"])
        self.server.over.wait(600.0 if "HANGS" in prompt else self.server.slow)
        if "REFUSED" in prompt:
            self._json(503, {"error": {"code": "full", "message": "Nothing is free."}})
        elif "HTML" in prompt:
            self._json(502, b"<html>Bad gateway</html>")
        elif "EMPTY" in prompt:
            self._json(200, {})
        elif body.get("stream"):
            self._stream(body, prompt)
        else:
            self._json(200, {"choices": [self._choice(body, "four words of answer")]})

    def _choice(self, body: dict[str, Any], text: str) -> dict[str, Any]:
        if "messages" not in body:
            return {"text": text}
        return {"delta" if body.get("stream") else "message": {"content": text}}

    def _stream(self, body: dict[str, Any], prompt: str) -> None:
        self.send_response(200)
        self.send_header("X-Request-ID", self.headers["X-Request-ID"])
        self.end_headers()
        for number in range(body["max_tokens"]):
            self._event({"choices": [self._choice(body, f" w{number}")]})
        if "LATE" in prompt:
            self._event({"error": {"code": "kv_lost", "message": "Gone."}})
        elif "BREAKS" not in prompt:
            self._event({"choices": [self._choice(body, "") | {"finish_reason": "length"}]})
            usage = {"prompt_tokens": len(prompt) // 5, "completion_tokens": body["max_tokens"]}
            self._event({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, document: object) -> None:
        self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")
        self.wfile.flush()
