"""JSON Schemas (draft 2020-12) of every document that pdctl reads from an engine or writes itself.

Strict about the keys that must be there and their types, open for additions: a newer engine may say more.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

NAMES = (
    *("engine_state", "engine_relink", "router_state", "router_requests", "diagnose", "check"),
    *("bundle_manifest", "bundle_fleet", "bisect", "load", "incidents", "supervisor_now"),
)


@cache
def schema(name: str) -> dict[str, Any]:
    """The schema document `name` (one of NAMES); FileNotFoundError for another."""
    text = resources.files("pdctl.contracts").joinpath(f"{name}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def _validator(name: str) -> Draft202012Validator:
    # Here, as most commands meet no document and its import costs them a tenth of their start.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema(name))


def faults(name: str, document: object) -> list[str]:
    """What is wrong with `document`, one line a fault as "path: sentence"; empty when it conforms."""
    found = sorted(_validator(name).iter_errors(document), key=lambda e: list(map(str, e.absolute_path)))
    return [f"{'/'.join(map(str, e.absolute_path)) or '(document)'}: {e.message}"[:300] for e in found]
