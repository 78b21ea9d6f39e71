"""`python -m sglang_router.launch_router …`: ready when both engines are healthy, sends both legs."""

from __future__ import annotations

import json
import secrets
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def flag(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


ENGINES = (flag("--prefill"), flag("--decode"))
BOOTSTRAP = int(sys.argv[sys.argv.index("--prefill") + 2]) if "--prefill" in sys.argv else 0


def ask(url: str, body: bytes | None = None, key: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(url, body, {"Authorization": key} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 503, b"{}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass

    def reply(self, status: int, data: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        fit = {url: ask(f"{url}/health")[0] == 200 for url in ENGINES}
        if self.path == "/readiness":
            return self.reply(200 if all(fit.values()) else 503, b'{"status": "ready"}')
        roles = ("prefill", "decode")
        rows = [
            {"url": url, "worker_type": role, "is_healthy": fit[url], "load": 0}
            for url, role in zip(ENGINES, roles, strict=True)
        ]
        if self.path == "/workers":
            return self.reply(200, json.dumps({"workers": rows, "total": 2}).encode())
        return self.reply(404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body |= {"bootstrap_host": "127.0.0.1", "bootstrap_port": BOOTSTRAP}
        body |= {"bootstrap_room": secrets.randbits(62)}
        key = self.headers.get("Authorization", "")
        with ThreadPoolExecutor(2) as pool:
            data = json.dumps(body).encode()
            legs = list(pool.map(lambda url: ask(f"{url}{self.path}", data, key), ENGINES))
        self.reply(*next((leg for leg in legs if leg[0] != 200), legs[1]))


if __name__ == "__main__":
    print("router up", flush=True)
    ThreadingHTTPServer((flag("--host", "127.0.0.1"), int(flag("--port"))), Handler).serve_forever()
