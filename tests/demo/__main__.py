"""The main job in one sitting: install, ask, break, diagnose, heal, tear down."""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import tomlkit

from tests.demo.agents import Agents
from tests.demo.stage import PATIENCE, Lie, Stage

MODEL = "smollm2-135m"


class Demo:
    def __init__(self, folder: Path) -> None:
        self.stage = Stage(folder)
        self.file = folder / "fleet.toml"

    @property
    def router(self) -> str:
        fleet = tomllib.loads(self.file.read_text())
        return f"http://127.0.0.1:{fleet['router']['port']}"

    def agents(self, rounds: int = 0) -> Agents:
        return Agents(self.router, MODEL, rounds=rounds)

    def url(self, engine: str) -> str:
        fleet = tomllib.loads(self.file.read_text())
        engines = {k: v for cell in fleet["cells"].values() for k, v in cell["engines"].items()}
        return f"http://127.0.0.1:{engines[engine]['port']}"

    def engine(self, name: str) -> dict[str, Any]:
        return dict(httpx.get(f"{self.url(name)}/v1/state", timeout=30.0).json())

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
        with httpx.stream(
            "POST", f"{self.router}/v1/chat/completions", json=body, timeout=PATIENCE
        ) as answer:
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
        agents = self.agents().start()
        s.wait("four agents finish their first rounds", lambda: len(agents.done) >= 6)
        # No healthy transfer lasts as long as a whole round does, however slow the machine is.
        long = max(4.0, 2 * max(r.seconds for r in agents.done))
        s.pdctl("drill", "arm", "prefill-0", "stall-transfer", "--count", "2")
        pinned: dict[str, float] = {}

        def two() -> bool:
            pinned.clear()
            pinned.update((id, age) for id, age in self.inflight() if age > long)
            return len(pinned) == 2

        s.wait(f"two requests are pinned in prefill-0's inflight queue for over {long:.0f} s", two)
        found = s.pdctl("diagnose", expect=3)
        s.check("PD602" in found, "diagnose names the pinned transfers as the cause")
        s.check(all(i in found for i in pinned), "and which requests they hold: " + ", ".join(pinned))
        s.title(
            "Their deadline fires and the agents go on. It is 100 s in the profile; no need to wait so long"
        )
        usual = self.shorten()
        s.wait("both were ended", lambda: len(agents.failed()) >= 2)
        self.set_timeouts(usual)
        count = len(agents.done)
        s.wait("every agent works again", lambda: len(agents.done) >= count + 8)
        agents.stop()
        s.say(agents.summary())
        s.check(
            sorted(r.code for r in agents.failed()) == ["kv_transfer_timeout"] * 2,
            "exactly the two stalled requests failed, with the typed error kv_transfer_timeout",
        )
        self.fired(set(pinned))
        self.whole("every KV page is free again")

    def inflight(self) -> list[tuple[str, float]]:
        """Requests in prefill-0's inflight queue, and for how many seconds."""
        requests = self.engine("prefill-0")["requests"]
        return [(r["id"], r["stage_age_s"]) for r in requests if r["stage"] == "inflight"]

    def shorten(self) -> dict[str, dict[str, float]]:
        """Bring the deadlines of a transfer down to what waits now, in their order: decode's fires first, and
        prefill's watchdog where decode does not. Live, so the profile keeps its values; what they were.
        """
        soon = math.ceil(max(age for _, age in self.inflight())) + 3.0
        return self.set_timeouts(
            {"decode-0": {"prealloc": soon, "transfer": soon}, "prefill-0": {"inflight": soon + 5}}
        )

    def set_timeouts(self, values: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        """Live, on the running engines alone; the values before."""
        token = (self.stage.folder / ".pdctl" / "token").read_text().strip()
        before = {}
        for engine, new in values.items():
            now = self.engine(engine)["timeouts"]
            before[engine] = {name: now[name]["value"] for name in new}
            said = ", ".join(f"{name} {before[engine][name]:g} -> {value:g} s" for name, value in new.items())
            self.stage.say(f"{engine}: POST /admin/timeouts  {said}")
            httpx.post(
                f"{self.url(engine)}/admin/timeouts",
                json=new,
                headers={"Authorization": f"Bearer {token}"},
                timeout=30.0,
            ).raise_for_status()
        return before

    def fired(self, ids: set[str]) -> None:
        """Show what the deadlines that ended these requests left: a line each, and the counters."""
        s = self.stage
        counts: Counter[str] = Counter()
        lines = []
        for engine in ("prefill-0", "decode-0"):
            counts.update(self.engine(engine)["counters"]["deadlines_fired"])
            log = s.pdctl("logs", engine, "-n", "400", quiet=True)
            lines += [line.strip() for line in log.splitlines() if " deadline=PD_" in line]
        for line in lines:
            s.say(line)
        named = [line.partition("request=")[2].partition(" ")[0] for line in lines]
        s.check(
            sorted(named) == sorted(ids), "one log line each, with the name and the value of the deadline"
        )
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        s.check(counts.total() == len(ids), f"and counted by name: deadlines_fired {said}")

    def one_sided_restart(self) -> None:
        s = self.stage
        s.title(
            "Restart decode alone, with stale peer state kept as today's fleets keep it (legacy-bootstrap)"
        )
        document = tomlkit.parse(self.file.read_text())
        cells: Any = document["cells"]
        cells["a"]["engines"]["prefill-0"]["legacy_bootstrap"] = True
        self.file.write_text(tomlkit.dumps(document))
        s.say("fleet.toml, [cells.a.engines.prefill-0]: legacy_bootstrap = true")
        s.pdctl("deploy", "--yes", quiet=True)
        s.pdctl("restart", "decode-0", "--yes")
        agents = self.agents(rounds=1).start()
        s.wait("every agent hangs", lambda: len([age for _, age in self.inflight() if age > 3]) == 4)
        found = s.pdctl("diagnose", expect=3)
        s.check("PD501" in found, "diagnose names the stale peer, not the hanging requests")
        s.check("restart --co" in found, "and the cure")
        self.shorten()
        agents.join()
        s.check(len(agents.failed()) == 4, f"without it every agent fails: {agents.summary()}")

    def co_restart(self) -> None:
        s = self.stage
        s.title("The cure: restart the pair together")
        s.pdctl("restart", "--co", "--yes")
        agents = self.agents(rounds=2).start().join()
        s.check(not agents.failed() and len(agents.done) == 8, f"it serves again: {agents.summary()}")
        s.title("The same under load: requests are held at the router, none is lost")
        agents = self.agents().start()
        s.wait("four agents at work", lambda: len(agents.done) >= 4)
        before = [self.engine(n)["incarnation"] for n in ("prefill-0", "decode-0")]
        s.pdctl("restart", "--co", "--yes")
        after = [self.engine(n)["incarnation"] for n in ("prefill-0", "decode-0")]
        s.check(not set(before) & set(after), "both incarnations are new")
        count = len(agents.done)
        s.wait("the agents go on", lambda: len(agents.done) >= count + 8)
        agents.stop()
        s.check(not agents.failed(), f"nothing was lost: {agents.summary()}")
        found = s.pdctl("diagnose", expect=None)  # what ails the machine itself is no part of this
        s.check("PD501" not in found and "PD602" not in found, "neither cause is found any more")

    def end(self) -> None:
        s = self.stage
        s.title("Status, and tear down")
        s.pdctl("status")
        s.pdctl("down", "--yes")

    def whole(self, what: str) -> None:
        def free() -> bool:
            pages = [self.engine(n)["pages"] for n in ("prefill-0", "decode-0")]
            return all(p["free"] == p["total"] for p in pages)

        self.stage.wait(what, free)


def main(argv: list[str]) -> int:
    folder = Path(argv[0]) if argv else Path(tempfile.mkdtemp(prefix="pdctl-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    demo = Demo(folder)
    began = time.monotonic()
    try:
        demo.run()
    except Lie as lie:
        print(f"\nThe demo failed: {lie}\nIts fleet's files are in {folder}.", file=sys.stderr)
        demo.stage.pdctl("down", "--yes", quiet=True)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print(f"\nDone in {time.monotonic() - began:.0f} s; nothing is left running.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
