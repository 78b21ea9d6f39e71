"""Looks made of documents that running engines and a router really gave."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pdctl.adapters.bundled import engine_sample, router_sample
from pdctl.adapters.picture import Reach
from pdctl.adapters.probe import Answer
from pdctl.supervisor.observation import (
    EngineLook,
    HostLook,
    Observation,
    RouterLook,
    engine_look,
    router_look,
)

RECORDED = Path(__file__).parents[2] / "cases/bundles/healthy/recorded-busy"


@cache
def answer(party: str, document: str = "state.1") -> Answer:
    body: dict[str, Any] = json.loads((RECORDED / party / f"{document}.json").read_text())
    return Answer(Reach.OK, body, "", 0.01)


def engine(name: str = "prefill-0", document: str = "state.1") -> EngineLook:
    role = name.partition("-")[0]
    return engine_look(EngineLook(name, "a", role, "local"), engine_sample(answer(name, document)))


def router() -> RouterLook:
    sample = router_sample(answer("router"), answer("router", "requests.1"))
    return router_look(RouterLook("router", "local"), sample)


def look(at: float, *engines: EngineLook, number: int = 1) -> Observation:
    hosts = (HostLook("local", True, at, at, local=True),)
    return Observation(
        "test", number, at, at, engines or (engine(), engine("decode-0")), router(), hosts, 0.02
    )


def moved(of: EngineLook, tokens: int) -> EngineLook:
    """As `of`, with so many more tokens generated."""
    assert of.progress is not None
    progress = replace(of.progress, tokens_generated=of.progress.tokens_generated + tokens)
    return replace(of, progress=progress)
