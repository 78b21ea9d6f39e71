"""Scenes: a fleet of one cell as documents that the contracts accept, turned into Facts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from pdctl import contracts
from pdctl.adapters.bundled import engine_sample, router_sample
from pdctl.adapters.picture import Pair, Reach
from pdctl.adapters.probe import Answer
from pdctl.diagnose.facts import EngineView, Facts, HostView, Member, RouterView
from pdctl.facts.clock import Clock
from pdctl.facts.machine import Room
from pdctl.facts.missing import Missing
from pdctl.facts.process import Process
from pdctl.facts.unit import Unit

AT = 1_700_000_000.0
TIMEOUTS = {
    "transfer": ("PD_DECODE_TRANSFER_TIMEOUT", 100.0, "decode"),
    "prealloc": ("PD_DECODE_PREALLOC_TIMEOUT", 100.0, "decode"),
    "inflight": ("PD_PREFILL_INFLIGHT_TIMEOUT", 120.0, "prefill"),
    "drain": ("PD_DRAIN_TIMEOUT", 30.0, "both"),
    "router_total": ("PD_ROUTER_TOTAL_TIMEOUT", 600.0, "router"),
    "router_idle": ("PD_ROUTER_IDLE_TIMEOUT", 150.0, "router"),
    "router_hold": ("PD_ROUTER_HOLD_TIMEOUT", 180.0, "router"),
}
QUEUES = ("waiting", "prefilling", "inflight", "preallocated", "transferring", "ready", "running")


def _timeouts() -> dict[str, Any]:
    return {
        name: {
            "value": value, "unit": "s", "env": env, "source": "default", "side": side, "live": True,
            "changed_at": None,
        }
        for name, (env, value, side) in TIMEOUTS.items()
    }  # fmt: skip


def incarnation(name: str, life: int = 1) -> str:
    return f"{sum(map(ord, name)):08x}{life:08x}"


def leg(id: str, stage: str, **over: Any) -> dict[str, Any]:
    base = {
        "id": id, "room": int(id.strip("r")), "stage": stage, "age_s": 1.0, "stage_age_s": 0.5,
        "prompt_tokens": 30, "output_tokens": 0, "pages": 2, "peer": None, "peer_incarnation": None,
        "waiting_on": None, "bytes": 0,
    }  # fmt: skip
    return base | over


def peer(name: str, **over: Any) -> dict[str, Any]:
    base = {
        "instance": name, "incarnation": incarnation(name), "address": f"127.0.0.1:{9000 + len(name)}",
        "linked": True, "since_age_s": 500.0, "last_heard_age_s": 0.5, "last_transfer_age_s": 2.0,
        "transfers_ok": 9, "transfers_failed": 0, "rooms_open": 0, "stale": False, "error": None,
    }  # fmt: skip
    return base | over


def host(name: str = "local", **over: Any) -> HostView:
    disk = Room("/opt", 1 << 40, 1 << 39, 1 << 20)
    healthy = {"clock": Clock(0.001, 0.004), "disk": disk, "ports": (), "reach": {}}
    return HostView(name=name, address="127.0.0.1", **(healthy | over))


class Scene:
    """Two healthy, idle engines and a router; tests change the documents and ask for facts.

    `docs[name]` is the second sample; `before[name]` patches of the first one. Steps move by
    `steps[name]` between the two.
    """

    def __init__(self) -> None:
        self.docs = {
            "prefill-0": self._engine("prefill-0", "prefill", "decode-0"),
            "decode-0": self._engine("decode-0", "decode", "prefill-0"),
        }
        self.router: dict[str, Any] = self._router()
        self.requests: list[dict[str, Any]] = []
        self.recent: list[dict[str, Any]] = []
        self.steps = {"prefill-0": 0, "decode-0": 0}
        self.before: dict[str, dict[str, Any]] = {}
        self.reach: dict[str, Reach] = {}
        self.units: dict[str, Unit] = {}
        self.processes: dict[str, Process | Missing] = {}
        self.expected: dict[str, dict[str, str] | Missing] = {}
        self.new_to_router: set[str] = set()
        self.hosts = [host()]
        self.run: str | Missing = ""

    def _engine(self, name: str, role: str, other: str) -> dict[str, Any]:
        return {
            "schema": 1, "instance": name, "role": role, "cell": "a", "incarnation": incarnation(name),
            "pid": 100, "started_at": AT - 1000, "now": AT, "address": f"127.0.0.1:{8000 + len(name)}",
            "bootstrap": f"127.0.0.1:{9000 + len(name)}" if role == "prefill" else None,
            "versions": {"engine": "0.1", "python": "3.11", "torch": "2", "nixl": "1"},
            "fingerprint": {
                "model": "abc", "dtype": "float32", "page_size": 16, "layout": "head-major-1", "layers": 30,
                "kv_heads": 3, "head_dim": 64, "tp": 1,
            },
            "timeouts": _timeouts(), "status": "ready", "ready": True, "not_ready": [],
            "snapshot_age_s": 0.1,
            "progress": {
                "steps": 100, "last_step_age_s": 40.0, "stepping_s": None, "loop_age_s": 0.01,
                "tokens_generated": 10, "tokens_prefilled": 10,
            },
            "queues": {q: {"depth": 0, "oldest_age_s": None} for q in QUEUES},
            "requests": [], "peers": [peer(other)],
            "pages": {"total": 100, "free": 100, "held": 0, "quarantined": 0, "page_size": 16},
            "ranks": [{"rank": 0, "pid": 101, "heartbeat_age_s": 0.3}],
            "counters": {
                "requests_received": 0, "requests_done": 0, "requests_aborted": 0, "requests_failed": {},
                "deadlines_fired": {}, "late_completions": 0, "transfers_ok": 9, "transfers_failed": 0,
                "transfer_bytes": 0, "transfer_seconds": 0.0, "preemptions": 0,
            },
            "dwell": {"le": [0.1], "counts": [0], "total": 0, "sum": 0.0, "recent": []},
            "faults": {"enabled": False, "armed": []}, "legacy_bootstrap": False, "drill_enabled": False,
            "environ": {},
        }  # fmt: skip

    def _router(self) -> dict[str, Any]:
        return {
            "schema": 1, "instance": "router", "role": "router", "incarnation": incarnation("router"),
            "pid": 99, "started_at": AT - 1000, "now": AT, "address": "127.0.0.1:8100",
            "versions": {"engine": "0.1"}, "timeouts": _timeouts(), "admission": "open", "held": 0,
            "hold_age_s": None, "engines": [self.told(doc) for doc in self.docs.values()],
            "counters": {
                "requests_total": 0, "requests_done": 0, "requests_aborted": 0, "requests_failed": {},
                "retries": 0, "held_total": 0,
            },
            "environ": {},
        }  # fmt: skip

    @staticmethod
    def told(doc: dict[str, Any]) -> dict[str, Any]:
        """An engine as the router sees it."""
        return {
            "instance": doc["instance"], "role": doc["role"], "cell": doc["cell"],
            "url": f"http://{doc['address']}", "bootstrap": doc["bootstrap"],
            "ready": True, "cordoned": False, "last_ok_age_s": 0.2, "error": None,
            "incarnation": doc["incarnation"], "active": 0,
        }  # fmt: skip

    def route(self, id: str, age: float, stage: str = "dispatched", **over: Any) -> None:
        legs = {
            side: {"engine": f"{side}-0", "status": "pending", "age_s": age} for side in ("prefill", "decode")
        }
        base = {
            "id": id, "room": int(id.strip("r")), "stage": stage, "age_s": age, "stage_age_s": age,
            "stream": True, "model": "m", "tokens_out": 0,
            "legs": legs if stage != "held" else {"prefill": None, "decode": None},
        }  # fmt: skip
        self.requests.append(base | over)

    def hold(self, name: str, *legs: dict[str, Any]) -> None:
        """Put legs on an engine, queues and pages following."""
        doc = self.docs[name]
        doc["requests"] += legs
        for each in legs:
            queue = doc["queues"][each["stage"]]
            queue["depth"] += 1
            queue["oldest_age_s"] = max(queue["oldest_age_s"] or 0, each["stage_age_s"])
            doc["pages"]["held"] += each["pages"]
            doc["pages"]["free"] -= each["pages"]

    def _first(self, name: str) -> dict[str, Any]:
        doc = copy.deepcopy(self.docs[name])
        doc["progress"]["steps"] -= self.steps[name]
        doc.update(self.before.get(name, {}))
        return doc

    def _answer(self, name: str, doc: dict[str, Any]) -> Answer:
        reach = self.reach.get(name, Reach.OK)
        return Answer(reach, doc if reach is Reach.OK else None, "" if reach is Reach.OK else "no", 0.01)

    def _member(self, name: str, role: str) -> Member:
        doc = self.docs.get(name, self.router)
        unit = self.units.get(name, Unit(name, "running", True, 100, None, 0, AT - 1000, AT - 1000))
        process = self.processes.get(name, Process(100, "sleeping", AT - 1000, {}))
        bootstrap = doc.get("bootstrap")
        expected = self.expected.get(name, {})
        url = f"http://{doc['address']}"
        return Member(name, role, "a", "local", url, bootstrap, expected, unit, process)

    def facts(self) -> Facts:
        views = []
        for name, doc in self.docs.items():
            assert contracts.faults("engine_state", doc) == []
            first = engine_sample(self._answer(name, self._first(name)))
            second = engine_sample(self._answer(name, doc))
            views.append(EngineView(self._member(name, doc["role"]), Pair(first, second, 1.0)))
        assert contracts.faults("router_state", self.router) == []
        ledger = {
            "schema": 1, "instance": "router", "now": AT, "requests": self.requests, "recent": self.recent,
        }  # fmt: skip
        assert contracts.faults("router_requests", ledger) == []
        older = ledger | {"requests": [r for r in self.requests if r["id"] not in self.new_to_router]}
        pair = Pair(
            router_sample(self._answer("router", self.router), self._answer("router", older)),
            router_sample(self._answer("router", self.router), self._answer("router", ledger)),
            1.0,
        )
        return Facts(
            "demo",
            AT,
            False,
            tuple(views),
            RouterView(self._member("router", "router"), pair),
            tuple(self.hosts),
            self.run,
        )


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def hosts() -> Callable[..., HostView]:
    return host


@pytest.fixture
def legs() -> Callable[..., dict[str, Any]]:
    return leg


@pytest.fixture
def peers() -> Callable[..., dict[str, Any]]:
    return peer
