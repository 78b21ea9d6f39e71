"""One engine as its HTTP API sees it: the group client plus the document of /v1/state."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from engine.core.errors import RequestError
from engine.core.settings import Settings
from engine.core.types import Request
from engine.group.client import GroupClient
from engine.group.messages import EngineConfig, Out

SHOWN_VARIABLES = ("PD_", "UCX_", "NCCL_", "OMP_", "GLOO_")
STALE_SNAPSHOT = 3.0


@dataclass(frozen=True)
class Info:
    """What is fixed for one life; `max_model_len` is 0 while the model loads."""

    instance: str
    role: str
    model_path: str
    served_model_name: str
    max_model_len: int


class Engine:
    """Lives in the parent. Status: starting, ready, draining, drained or stopping."""

    def __init__(self, config: EngineConfig, settings: Settings, client: GroupClient, served: str) -> None:
        self.config = config
        self.settings = settings
        self.client = client
        self.served = served
        self.started_at = time.time()
        self.stopping = False

    @property
    def info(self) -> Info:
        up = self.client.up
        c = self.config
        return Info(c.instance, c.role, c.model, self.served, up.max_model_len if up else 0)

    # requests ---------------------------------------------------------------------------------------

    def submit(self, request: Request) -> AsyncIterator[Out]:
        """Outputs of one request; RequestError when this engine takes none."""
        if self.client.up is None:
            raise RequestError("draining", "The engine is still starting.", 503)
        if self.stopping:
            raise RequestError("draining", "The engine is stopping.", 503)
        return self.client.submit(request)

    async def abort(self, id: str, by: str) -> bool:
        return await self.client.abort(id, by)

    async def abort_room(self, room: int, by: str) -> bool:
        return await self.client.abort_room(room, by)

    async def admin(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        return await self.client.admin(verb, args)

    # state ------------------------------------------------------------------------------------------

    @property
    def snapshot_age(self) -> float | None:
        at = self.client.snapshot_at
        return None if at is None else time.monotonic() - at

    @property
    def standstill(self) -> float | None:
        """Seconds since the scheduler is known to have turned and, with work, to have made a step.

        Being there is not enough: the publisher speaks also while a forward hangs. None before a word.
        """
        age = self.snapshot_age
        if age is None:
            return None
        progress = self.client.snapshot.get("progress", {})
        return age + max(progress.get("loop_age_s") or 0.0, progress.get("stalled_s") or 0.0)

    def progressing(self, fresh: float, step: float) -> bool:
        """Whether the leader was heard within `fresh` s and its scheduler stood still under `step` s."""
        age, still = self.snapshot_age, self.standstill
        return age is not None and age < fresh and still is not None and still < step

    def not_ready(self) -> list[str]:
        """Why this engine should get no requests now; empty when it is ready."""
        if self.stopping:
            return ["stopping"]
        if self.client.up is None:
            return ["the model is loading"]
        age = self.snapshot_age
        if age is None or age > STALE_SNAPSHOT:
            silent = "yet" if age is None else f"for {age:.1f} s"
            return [f"the leader has published no state {silent}"]
        reasons = []
        if self.client.snapshot.get("draining"):
            reasons.append("draining")
        if self.config.role == "decode" and not self.client.snapshot.get("linked"):
            reasons.append(self._unlinked())
        return reasons

    def _unlinked(self) -> str:
        """Why no prefill is linked, as far as the link knows."""
        names = self.config.peer_names
        known = [
            (p.get("instance") or names.get(p["address"], p["address"]), p["error"])
            for p in self.client.snapshot.get("peers", [])
        ]
        errors = [f"{peer}: {error}" for peer, error in known if error]
        return "no prefill is linked" + (f" ({'; '.join(errors)})" if errors else "")

    def status(self) -> str:
        if self.stopping:
            return "stopping"
        if self.client.up is None:
            return "starting"
        if self.client.snapshot.get("draining"):
            return "drained" if self.client.snapshot.get("empty") else "draining"
        return "ready"

    def state(self) -> dict[str, Any]:
        """The document of GET /v1/state, schema 1; complete from the first second on."""
        up, snapshot, age = self.client.up, self.client.snapshot, self.snapshot_age
        not_ready = self.not_ready()
        return {
            **self._identity(),
            "versions": up.versions if up else {"python": sys.version.split()[0]},
            "fingerprint": up.fingerprint if up else {},
            "load_seconds": up.load_seconds if up else None,
            "timeouts": snapshot.get("timeouts") or self.settings.document(),
            "status": self.status(),
            "ready": not not_ready,
            "not_ready": not_ready,
            "snapshot_age_s": None if age is None else round(age, 3),
            **{key: snapshot.get(key, default) for key, default in EMPTY.items()},
            "ranks": [
                {
                    "rank": r.rank,
                    "pid": r.process.pid,
                    "heartbeat_age_s": None if r.beat is None else round(time.monotonic() - r.beat, 3),
                }
                for r in self.client.ranks
            ],
        }

    def _identity(self) -> dict[str, Any]:
        c = self.config
        bootstrap = f"{c.advertise}:{c.bootstrap_port}" if c.bootstrap_port else None
        return {
            "schema": 1,
            "instance": c.instance,
            "role": c.role,
            "cell": c.cell,
            "incarnation": c.incarnation,
            "pid": os.getpid(),
            "started_at": self.started_at,
            "now": time.time(),
            "address": f"{c.advertise}:{c.port}",
            "bootstrap": bootstrap,
            "served_model_name": self.served,
            "legacy_bootstrap": c.legacy_bootstrap,
            "drill_enabled": c.drill,
            "environ": {k: v for k, v in sorted(os.environ.items()) if k.startswith(SHOWN_VARIABLES)},
        }


EMPTY: dict[str, Any] = {
    "progress": {
        "steps": 0,
        "last_step_age_s": None,
        "stepping_s": None,
        "loop_age_s": None,
        "stalled_s": None,
        "tokens_generated": 0,
        "tokens_prefilled": 0,
    },
    "queues": {},
    "requests": [],
    "peers": [],
    "pages": {"total": 0, "free": 0, "cached": 0, "held": 0, "quarantined": 0, "page_size": 0},
    "counters": {},
    "dwell": {"le": [], "counts": [], "total": 0, "sum": 0.0, "recent": []},
    "faults": {"enabled": False, "armed": []},
}
