"""`python -m sglang.launch_server …`: says what it was started with, is healthy, answers completions.

FAKE_DIR gets PORT.json (argv, environment, folder) and PORT.asked, a line for each path it was asked for.
`sick` in FAKE_DIR/PORT.behave keeps it from being healthy; `exit=N` there, or FAKE_EXIT, ends it at once.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def flag(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


PORT = int(flag("--port", "30000"))
HOST = flag("--host", "127.0.0.1")
HOME = Path(os.environ["FAKE_DIR"])
MODE = flag("--disaggregation-mode", "null")
KEY = flag("--api-key")

INFO = {"model_path": "/m", "page_size": 1, "disaggregation_mode": MODE, "version": "0.5.17"}
LOAD = {"dp_rank": 0, "timestamp": 0.0, "num_running_reqs": 0, "num_waiting_reqs": 0, "num_used_tokens": 0}
LOAD |= {"max_total_num_tokens": 4096, "disaggregation": {"mode": MODE, f"{MODE}_inflight_queue_reqs": 0}}
PAGES = {"/v1/loads": {"loads": [LOAD]}, "/model_info": {"model_path": "/m"}}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass

    def reply(self, status: int, body: object = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def asked(self) -> str:
        with (HOME / f"{PORT}.asked").open("a") as file:
            print(f"{self.command} {self.path}", file=file)
        behave = HOME / f"{PORT}.behave"
        return behave.read_text() if behave.exists() else ""

    def do_GET(self) -> None:
        how = self.asked()
        path = self.path.partition("?")[0]
        if path in ("/health", "/server_info"):
            self.reply(503 if "sick" in how else 200, INFO if path == "/server_info" else None)
        else:
            self.reply(200 if path in PAGES else 404, PAGES.get(path))

    def do_POST(self) -> None:
        self.asked()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions":
            return self.reply(404)
        if KEY and self.headers.get("Authorization") != f"Bearer {KEY}":
            return self.reply(401, {"object": "error", "message": "no key"})
        if MODE != "null" and not body.get("bootstrap_room"):
            return self.reply(400, {"object": "error", "message": "no room"})
        return self.reply(200, {"choices": [{"text": " Paris.", "finish_reason": "length"}]})


class Bootstrap(Handler):
    """Where decodes ask a prefill for its ranks."""

    def do_GET(self) -> None:
        self.reply(200, {"attn_tp_size": 1, "dp_size": 1, "pp_size": 1, "page_size": 1})


def main() -> None:
    behave = HOME / f"{PORT}.behave"
    how = f"exit={os.environ['FAKE_EXIT']}" if "FAKE_EXIT" in os.environ else ""
    how = behave.read_text() if behave.exists() else how
    if how.startswith("exit="):
        print("it cannot start: the test wants it so", flush=True)
        sys.exit(int(how[5:]))
    started = [sys.orig_argv, dict(os.environ), os.getcwd()]
    (HOME / f"{PORT}.json").write_text(json.dumps(started))
    if MODE == "prefill":
        link = ThreadingHTTPServer((HOST, int(flag("--disaggregation-bootstrap-port", "8998"))), Bootstrap)
        threading.Thread(target=link.serve_forever, daemon=True).start()
    print(f"serving {MODE} on {PORT}", flush=True)
    ThreadingHTTPServer((HOST, PORT), Handler).serve_forever()


if __name__ == "__main__":
    main()
