"""`python -m sglang.launch_server …`: says what it was started with, is healthy, answers completions.

A prefill's answer waits until decode has asked for the room, at the prefill's bootstrap server, as long as
SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT says; then it fails as SGLang does, with its line and its counter.

FAKE_DIR gets PORT.json (argv, environment, folder) and PORT.asked, a line for each path it was asked for.
`sick` in FAKE_DIR/PORT.behave keeps it from being healthy; `exit=N` there, or FAKE_EXIT, ends it at once.
`fork`: SGLANG_DSV4_PREFILL_INFLIGHT_TIMEOUT counts for rooms without a decode too; `deaf`: no deadline does;
`blind`: its numbers do not move.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.request
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
ASKED: set[int] = set()
COUNTS = {"waiting": 0, "failed": 0}
METRICS = """# TYPE sglang:num_bootstrap_failed_reqs counter
sglang:num_bootstrap_failed_reqs_total{{engine_type="prefill"}} {failed}
# TYPE sglang:token_usage gauge
sglang:token_usage{{engine_type="prefill"}} {usage}
"""


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass

    def reply(self, status: int, body: object = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def plain(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

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
        elif path == "/metrics":
            usage = 0.0 if "blind" in how else COUNTS["waiting"] / 10
            self.plain(METRICS.format(failed=COUNTS["failed"], usage=usage))
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
        if MODE != "null" and (why := handed_over(body, self.asked())):
            print(f"Prefill bootstrap failed for request rank=0 {why}", flush=True)
            return self.reply(500, {"object": "error", "message": why})
        return self.reply(200, {"choices": [{"text": " Paris.", "finish_reason": "length"}]})


def handed_over(body: dict[str, object], how: str) -> str:
    """Decode asks for the room, prefill waits until it does; why it gave up, "" when it did not."""
    room = int(str(body["bootstrap_room"]))
    if MODE == "decode":
        url = f"http://{body['bootstrap_host']}:{body['bootstrap_port']}/want?room={room}"
        urllib.request.urlopen(url, timeout=10).close()
        return ""
    limit = float(os.environ.get("SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT", "300"))
    if "fork" in how:
        limit = min(limit, float(os.environ.get("SGLANG_DSV4_PREFILL_INFLIGHT_TIMEOUT", "120")))
    end = time.monotonic() + limit
    COUNTS["waiting"] += 1
    try:
        while room not in ASKED:
            if time.monotonic() > end and "deaf" not in how:
                COUNTS["failed"] += 1
                return f"Request {room} timed out after {limit}s in KVPoll.Bootstrapping"
            time.sleep(0.02)
        return ""
    finally:
        COUNTS["waiting"] -= 1


class Bootstrap(Handler):
    """Where decodes ask a prefill for its ranks."""

    def do_GET(self) -> None:
        path, _, room = self.path.partition("?room=")
        if path == "/want":
            ASKED.add(int(room))
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
