"""A pair and its router with known right answers, shared by cells, each of which leaves it serving."""

from __future__ import annotations

import fcntl
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.stack import HTTP, Process, Stack, bootstrap_port, stack
from tests.faults.load import ASKS, FRESH, answer_of, body, wait

# One chain of deadlines, each shorter than what waits outside it, and short enough to be seen to fire.
QUICK = {
    "PD_RANK_TIMEOUT": "6",
    "PD_STEP_TIMEOUT": "15",
    "PD_HEARTBEAT_TIMEOUT": "3",
    "PD_DECODE_PREALLOC_TIMEOUT": "8",
    "PD_DECODE_TRANSFER_TIMEOUT": "8",
    "PD_PREFILL_INFLIGHT_TIMEOUT": "10",
    "PD_DRAIN_TIMEOUT": "3",
}
# Tried once: what is measured is how a client hears of a fault, not how it is kept from it.
READY = 240.0  # seconds; a bed that starts is no cell: patience costs nothing
ROUTER = {
    "PD_ROUTER_IDLE_TIMEOUT": "20",
    "PD_ROUTER_TOTAL_TIMEOUT": "40",
    "PD_ROUTER_HOLD_TIMEOUT": "20",
    "PD_ROUTER_PAIR_TIMEOUT": "10",
    "PD_ROUTER_TRIES": "1",
}


@dataclass
class Bed:
    """`right` are the single engine's answers to ASKS and FRESH."""

    stack: Stack
    right: list[str]

    @property
    def url(self) -> str:
        return self.stack["router"].url

    @property
    def engines(self) -> list[Process]:
        return [p for p in self.stack.processes.values() if p.name != "router"]

    def __getitem__(self, name: str) -> Process:
        return self.stack[name]

    def heal(self) -> None:
        """What an earlier cell left broken is started anew, so that each cell fails for itself."""
        for process in self.stack.processes.values():
            if process.popen is None or process.popen.poll() is not None:
                process.start()
        for process in self.stack.processes.values():
            process.wait_ready()
        for engine in self.engines:
            for armed in engine.state()["faults"]["armed"]:
                self.stack.admin(engine.name, "faults", name=armed["name"], armed=False)
        wait(self.clean, 60.0, "a clean bed before the fault", every=0.2)
        wait(self.answers, 60.0, "an answer before the fault", every=0.2)

    def answers(self) -> bool:
        try:
            return answer_of(self.url, ASKS[0]) == self.right[0]
        except (AssertionError, httpx.HTTPError):
            return False

    def leg(self, name: str, room: int) -> httpx.Response:
        """One leg of a request by hand, as a router sends it: nobody tries again."""
        where = {
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": bootstrap_port(self["prefill-0"]),
            "bootstrap_room": room,
        }
        return HTTP.post(f"{self[name].url}/v1/completions", json=body(ASKS[0], False) | where, timeout=40.0)

    def is_ready(self, name: str) -> bool:
        try:
            return self[name].ready()
        except httpx.HTTPError:
            return False

    def states(self) -> dict[str, dict[str, Any]]:
        return {e.name: e.state() for e in self.engines}

    def clean(self) -> bool:
        try:
            states = self.states().values()
        except httpx.HTTPError:
            return False
        return all(not s["requests"] and s["pages"]["free"] == s["pages"]["total"] for s in states)

    def held(self) -> dict[str, int]:
        """Pages that are not free, by engine."""
        return {n: s["pages"]["total"] - s["pages"]["free"] for n, s in self.states().items()}

    def one_life_each(self) -> bool:
        """No edge to a life that is over: each side's linked peers are the other side's present lives."""
        states = self.states()
        lives = {
            r: {s["incarnation"] for s in states.values() if s["role"] == r} for r in ("prefill", "decode")
        }
        for state in states.values():
            other = lives["decode" if state["role"] == "prefill" else "prefill"]
            if {p["incarnation"] for p in state["peers"] if p["linked"]} != other:
                return False
        return True

    def depth(self, name: str, *queues: str) -> int:
        depths = self[name].state()["queues"]
        return sum(int(depths[q]["depth"]) for q in queues)

    def hits(self, name: str, point: str) -> int:
        return int(self[name].state()["faults"].get("hits", {}).get(point, 0))


def make_pair(made: Stack, prefill: int, decode: int) -> None:
    """prefill-0, decode-0 and the router, started together and ready."""
    made.engine("prefill-0", "prefill", tp=prefill, env=QUICK, token_budget=128)
    made.engine("decode-0", "decode", tp=decode, env=QUICK)
    made.router(env=ROUTER)
    for process in made.processes.values():
        process.wait_ready(READY)


def single_answers(folder: Path, model: Path) -> list[str]:
    """The single engine's answers to ASKS and FRESH; once a test session, by whichever worker comes first."""
    found = folder / "single-answers.json"
    with open(folder / "single-answers.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            (folder / "single").mkdir()
            with stack(folder / "single", model) as made:
                made.engine("single", "both", env={"PD_PREFIX_CACHE": "0"}).wait_ready(READY)
                found.write_text(json.dumps([answer_of(made["single"].url, ask) for ask in ASKS + FRESH]))
    answers: list[str] = json.loads(found.read_text())
    return answers


class Beds:
    """One bed at a time: asking for another shape ends the one before."""

    def __init__(self, folder: Path, model: Path, right: list[str]) -> None:
        self._folder, self._model, self._right = folder, model, right
        self._shape: tuple[int, int] | None = None
        self._open: Any = None
        self._bed: Bed | None = None

    def get(self, prefill: int, decode: int) -> Bed:
        if self._bed is None or self._shape != (prefill, decode):
            self.close()
            folder = self._folder / f"p{prefill}d{decode}"
            folder.mkdir(exist_ok=True)
            self._open = stack(folder, self._model)
            self._bed = Bed(self._open.__enter__(), self._right)
            self._shape = (prefill, decode)
            make_pair(self._bed.stack, prefill, decode)
        return self._bed

    def close(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open = self._bed = self._shape = None
