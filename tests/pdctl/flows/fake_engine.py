"""A test double that stands where `python -m engine` would: argv, env file, HTTP, exit codes, sd_notify.

Run for `-m engine …` by what stands for the fleet file's `python` (conftest.fake_python). It may also be
engine/__main__.py of a release, for hosts whose Python is what a deploy makes. The instance's
behaviour comes from a file NAME.behave beside this process's env file, from engine/behave of the release it
runs from, and from FAKE_BEHAVE: exit=N, exit_with=VARIABLE, silent, empty, late (it serves nothing
until that word is gone), unloadable; NAME: in front of a word keeps it to that instance.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

STARTED = secrets.token_hex(8)
# What an engine calls some of its timeouts; the others go by their variable here.
NAMES = {
    "PD_PREFILL_INFLIGHT_TIMEOUT": "inflight",
    "PD_DECODE_PREALLOC_TIMEOUT": "prealloc",
    "PD_DECODE_TRANSFER_TIMEOUT": "transfer",
    "PD_ROUTER_IDLE_TIMEOUT": "router_idle",
    "PD_QUEUE_TIMEOUT": "queue",
}


def flags(argv: list[str]) -> dict[str, str]:
    return {a[2:]: argv[i + 1] for i, a in enumerate(argv[:-1]) if a.startswith("--")}


def behaviour(*files: Path) -> list[str]:
    words = [word for file in files if file.exists() for word in file.read_text().split()]
    words += os.environ.get("FAKE_BEHAVE", "").split()
    return [w.rpartition(":")[2] for w in words if ":" not in w or w.partition(":")[0] == Handler.name]


class Handler(BaseHTTPRequestHandler):
    name = ""
    timeouts: ClassVar[dict[str, float]] = {}
    sources: ClassVar[dict[str, str]] = {}
    empty = False
    told: ClassVar[dict[str, bool]] = {}
    """Engines that a router was given -> cordoned."""

    def named(self) -> dict[str, dict[str, object]]:
        rows = {
            k: {"env": k, "value": v, "source": self.sources.get(k, "env")} for k, v in self.timeouts.items()
        }
        return {NAMES.get(k, k): row for k, row in rows.items()}

    def log_message(self, *args: object) -> None:
        pass

    def reply(self, body: dict[str, object], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/ready":
            self.reply({"ready": True, "reasons": []})
        else:
            state = {"instance": self.name, "incarnation": STARTED, "timeouts": self.named()}
            state["knobs"] = {k: v for k, v in os.environ.items() if k.startswith("KNOB_")}
            engines = [{"instance": name, "cordoned": held} for name, held in self.told.items()]
            self.reply(state | ({"admission": "open", "engines": engines} if self.name == "router" else {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/admin/timeouts":
            if not self.headers.get("Authorization", "").startswith("Bearer "):
                return self.reply({"error": {"code": "no_token", "message": "no"}}, 401)
            envs = {name: env for env, name in NAMES.items()}
            for name, value in body.items():
                self.timeouts[envs[name]] = value
                self.sources[envs[name]] = "admin"
            return self.reply(dict(self.named()))
        if self.path == "/admin/cordon":
            if body["engine"] not in self.told:
                return self.reply({"error": {"code": "unknown_engine", "message": "no"}}, 404)
            self.told[body["engine"]] = body["cordoned"]
            return self.reply(body)
        text = "" if self.empty else "Things fall."
        choice = {"text": text, "message": {"content": text}, "finish_reason": "stop"}
        return self.reply({"choices": [choice], "usage": {"completion_tokens": 4}})


def notify(path: str) -> None:
    """Ready, and a watchdog that is fed as long as this process lives and is supervised."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(b"READY=1\nSTATUS=serving", path)
        while True:
            time.sleep(1.0)
            out.sendto(b"WATCHDOG=1", path)


def main(argv: list[str]) -> None:
    given = flags(argv)
    Handler.name = given["instance"]
    root = Path(os.environ["PD_FLEET_TOKEN_FILE"]).parent
    how = behaviour(root / f"{Handler.name}.behave", Path("engine/behave"))
    for word in how:
        if word.startswith("exit_with=") and word[10:] in os.environ:
            sys.exit(2)
        if word.startswith("exit="):
            print(f"{Handler.name} cannot start: the test wants it so", flush=True)
            sys.exit(int(word[5:]))
    named = (word for flag, word in itertools.pairwise(argv) if flag in ("--prefill", "--decode"))
    Handler.told = {word.partition("=")[0]: False for word in named}
    Handler.empty = "empty" in how
    Handler.timeouts = {k: float(v) for k, v in os.environ.items() if k.endswith("_TIMEOUT")}
    while "late" in behaviour(root / f"{Handler.name}.behave", Path("engine/behave")):
        time.sleep(0.05)
    server = ThreadingHTTPServer((given["host"], int(given["port"])), Handler)
    if "silent" not in how and "NOTIFY_SOCKET" in os.environ:
        threading.Thread(target=notify, args=(os.environ["NOTIFY_SOCKET"],), daemon=True).start()
    print(f"{Handler.name} life {STARTED}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if Path(__file__).name == "__main__.py":
        sys.argv[1:1] = ["-m", "engine"]
    if sys.argv[1:4] == ["-m", "engine", "version"]:
        whole = behaviour(Path("engine/behave")) != ["unloadable"]
        print(
            json.dumps(
                {"engine": "fake", "broken": {} if whole else {"torch": "ImportError: no such library"}}
            )
        )
        sys.exit(0 if whole else 2)
    else:
        main(sys.argv[3:])
