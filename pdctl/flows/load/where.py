"""Where a request stands that has not ended: asked back from the router's ledger and its engines."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import httpx

from pdctl import contracts

_PATIENCE = 3.0  # seconds for one document; who asks has waited for a request already
_FRESH = 0.5  # seconds for which many that hang together share one look


@dataclass(frozen=True)
class Leg:
    """An engine's part. `stage` and `waiting_on` are the engine's own words; "unknown" when it has no such
    request, "no answer" when it cannot be asked."""

    engine: str
    status: str
    stage: str
    stage_age_s: float | None
    waiting_on: str | None = None


@dataclass(frozen=True)
class Standing:
    """`stage` and `age_s` are the router's; "unknown" when its ledger has no such request, "no ledger" when
    the endpoint has none to ask."""

    stage: str
    age_s: float | None = None
    prefill: Leg | None = None
    decode: Leg | None = None


class Whereabouts:
    """Answers from one look at the router and its engines at a time."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client, self._url = client, url
        self._looking = asyncio.Lock()
        self._looked = -_FRESH
        self._documents: dict[str, dict[str, Any]] = {}

    async def of(self, id: str) -> Standing:
        async with self._looking:
            if time.monotonic() - self._looked > _FRESH:
                self._documents.clear()
                await self._look("", f"{self._url}/v1/requests")
                self._looked = time.monotonic()
            ledger = self._documents[""]
            if contracts.faults("router_requests", ledger):
                return Standing("no ledger")
            entry = next((r for r in ledger["requests"] if r.get("id") == id), None)
            if entry is None:
                return Standing("unknown")
            legs = {side: leg for side, leg in entry["legs"].items() if leg}
            await self._ask({leg["engine"] for leg in legs.values()})
            stands = {side: self._leg(id, leg) for side, leg in legs.items()}
            return Standing(entry["stage"], entry["age_s"], stands.get("prefill"), stands.get("decode"))

    async def _ask(self, names: set[str]) -> None:
        """The state of every engine by this name that was not asked in this look."""
        missing = names - self._documents.keys()
        if not missing:
            return
        await self._look("router", f"{self._url}/v1/state")
        urls = {e.get("instance"): e.get("url") for e in self._documents["router"].get("engines", [])}
        await asyncio.gather(*(self._look(n, f"{urls[n]}/v1/state") for n in missing if urls.get(n)))

    async def _look(self, name: str, url: str) -> None:
        """{} when there is no such document."""
        self._documents[name] = {}
        try:
            answer = await self._client.get(url, timeout=_PATIENCE)
            document = answer.json() if answer.status_code == 200 else {}
        except (httpx.HTTPError, ValueError):
            return
        self._documents[name] = document if isinstance(document, dict) else {}

    def _leg(self, id: str, leg: dict[str, Any]) -> Leg:
        name, status = leg["engine"], leg["status"]
        state = self._documents.get(name) or {}
        if "requests" not in state:
            return Leg(name, status, "no answer", None)
        found = next((r for r in state["requests"] if r.get("id") == id), None)
        if found is None:
            return Leg(name, status, "unknown", None)
        return Leg(name, status, found["stage"], found.get("stage_age_s"), found.get("waiting_on"))
