"""The main job in one sitting: install, ask, break, diagnose, heal, tear down."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import httpx
import tomlkit

from tests.demo.agents import Agents
from tests.demo.stage import Lie, Stage

MODEL = "smollm2-135m"
WATCHDOG = 15.0


class Demo:
    def __init__(self, folder: Path) -> None:
        self.stage = Stage(folder)
        self.file = folder / "fleet.toml"

    @property
    def router(self) -> str:
        fleet = tomllib.loads(self.file.read_text())
        return f"http://127.0.0.1:{fleet['router']['port']}"

    def agents(self, rounds: int = 0, timeout: float = 120.0) -> Agents:
        return Agents(self.router, MODEL, rounds=rounds, timeout=timeout)

    def url(self, engine: str) -> str:
        fleet = tomllib.loads(self.file.read_text())
        engines = {k: v for cell in fleet["cells"].values() for k, v in cell["engines"].items()}
        return f"http://127.0.0.1:{engines[engine]['port']}"

    def engine(self, name: str) -> dict[str, Any]:
        return dict(httpx.get(f"{self.url(name)}/v1/state", timeout=5.0).json())

    def run(self) -> None:
        self.install()
        self.ask()
        self.stalled_transfer()
        self.one_sided_restart()
        self.co_restart()
        self.end()

    def install(self) -> None:
        s = self.stage
        s.title("Get the model, write a fleet file, deploy it on this machine")
        s.pdctl("model", "pull", MODEL)
        s.pdctl("init", "--local", "--model", MODEL, "--drill")
        s.pdctl("deploy", "--yes")
        s.check("0 changes" in s.pdctl("deploy", "--yes"), "a second deploy changes nothing")

    def ask(self) -> None:
        s = self.stage
        s.title("Ask one question, stream the answer")
        question = "What is gravity? Answer in two sentences."
        s.say(question)
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": 64,
            "temperature": 0,
            "stream": True,
        }
        text, print_ = "", print
        print_("   > ", end="", flush=True)
        with httpx.stream("POST", f"{self.router}/v1/chat/completions", json=body, timeout=60.0) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    delta = json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                    text += delta
                    print_(delta, end="", flush=True)
        print_()
        s.check("gravity" in text.lower(), "prefill computed the prompt, decode streamed a sensible answer")

    def stalled_transfer(self) -> None:
        s = self.stage
        s.title("Agents at work; two of their KV transfers stall. No error, no log line, engines look idle")
        self.short_watchdog()
        agents = self.agents().start()
        s.wait("four agents finish their first rounds", lambda: len(agents.done) >= 6, 60.0)
        s.pdctl("drill", "arm", "prefill-0", "stall-transfer", "--count", "2")
        pinned = lambda: [  # noqa: E731 - used three lines on, and nowhere else
            r["id"]
            for r in self.engine("prefill-0")["requests"]
            if r["stage"] == "inflight" and r["stage_age_s"] > 4
        ]
        s.wait("two requests are pinned in prefill-0's inflight queue", lambda: len(pinned()) == 2, 60.0)
        ids = pinned()
        found = s.pdctl("diagnose", expect=3)
        s.check("PD602" in found, "diagnose names the pinned transfers as the cause")
        s.check(ids and all(i in found for i in ids), "and which requests they hold: " + ", ".join(ids))
        s.title(f"The watchdog barks after {WATCHDOG:g} s and the agents go on")
        s.wait("the watchdog ended both", lambda: len(agents.failed()) >= 2, WATCHDOG + 20.0)
        count = len(agents.done)
        s.wait("every agent works again", lambda: len(agents.done) >= count + 8, 60.0)
        agents.stop()
        s.say(agents.summary())
        s.check(
            sorted(r.code for r in agents.failed()) == ["kv_transfer_timeout"] * 2,
            "exactly the two stalled requests failed, with the typed error kv_transfer_timeout",
        )
        line = s.pdctl("logs", "prefill-0", "-n", "400", quiet=True)
        for bark in [text for text in line.splitlines() if "kv_transfer_timeout" in text]:
            s.say(bark.strip())
        s.check(line.count("kv_transfer_timeout") == 2, "one log line each")
        self.whole("every KV page is free again")

    def short_watchdog(self) -> None:
        """Live, on the running engine alone: the profile keeps its value and its order of deadlines."""
        token = (self.stage.folder / ".pdctl" / "token").read_text().strip()
        self.stage.say(f'prefill-0: POST /admin/timeouts {{"inflight": {WATCHDOG:g}}}  (120 s otherwise)')
        httpx.post(
            f"{self.url('prefill-0')}/admin/timeouts",
            json={"inflight": WATCHDOG},
            headers={"Authorization": f"Bearer {token}"},
            timeout=5.0,
        ).raise_for_status()

    def one_sided_restart(self) -> None:
        s = self.stage
        s.title(
            "Restart decode alone, with stale peer state kept as today's fleets keep it (legacy-bootstrap)"
        )
        document = tomlkit.parse(self.file.read_text())
        cells: Any = document["cells"]
        cells["a"]["engines"]["prefill-0"]["legacy_bootstrap"] = True
        self.file.write_text(tomlkit.dumps(document))
        s.pdctl("deploy", "--yes", quiet=True)
        s.pdctl("restart", "decode-0", "--yes")
        self.short_watchdog()
        agents = self.agents(rounds=1, timeout=60.0).start()
        stuck = lambda: self.engine("prefill-0")["queues"]["inflight"]  # noqa: E731
        s.wait("every agent hangs", lambda: stuck()["depth"] == 4 and stuck()["oldest_age_s"] > 3, 40.0)
        found = s.pdctl("diagnose", expect=3)
        s.check("PD501" in found, "diagnose names the stale peer, not the hanging requests")
        s.check("restart --co" in found, "and the cure")
        agents.stop()
        s.check(len(agents.failed()) == 4, f"without it every agent fails: {agents.summary()}")

    def co_restart(self) -> None:
        s = self.stage
        s.title("The cure: restart the pair together")
        s.pdctl("restart", "--co", "--yes")
        agents = self.agents(rounds=2, timeout=60.0).start().join()
        s.check(not agents.failed() and len(agents.done) == 8, f"it serves again: {agents.summary()}")
        s.title("The same under load: requests are held at the router, none is lost")
        agents = self.agents(timeout=240.0).start()
        s.wait("four agents at work", lambda: len(agents.done) >= 4, 60.0)
        before = [self.engine(n)["incarnation"] for n in ("prefill-0", "decode-0")]
        s.pdctl("restart", "--co", "--yes")
        after = [self.engine(n)["incarnation"] for n in ("prefill-0", "decode-0")]
        s.check(not set(before) & set(after), "both incarnations are new")
        count = len(agents.done)
        s.wait("the agents go on", lambda: len(agents.done) >= count + 8, 60.0)
        agents.stop()
        s.check(not agents.failed(), f"nothing was lost: {agents.summary()}")
        s.pdctl("diagnose")

    def end(self) -> None:
        s = self.stage
        s.title("Status, and tear down")
        s.pdctl("status")
        s.pdctl("down")

    def whole(self, what: str) -> None:
        def free() -> bool:
            pages = [self.engine(n)["pages"] for n in ("prefill-0", "decode-0")]
            return all(p["free"] == p["total"] for p in pages)

        self.stage.wait(what, free, 20.0)


def main(argv: list[str]) -> int:
    folder = Path(argv[0]) if argv else Path(tempfile.mkdtemp(prefix="pdctl-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    demo = Demo(folder)
    began = time.monotonic()
    try:
        demo.run()
    except Lie as lie:
        print(f"\nThe demo failed: {lie}\nIts fleet's files are in {folder}.", file=sys.stderr)
        demo.stage.pdctl("down", quiet=True)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print(f"\nDone in {time.monotonic() - began:.0f} s; nothing is left running.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
