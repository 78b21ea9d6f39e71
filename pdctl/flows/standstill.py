"""Whether an engine can still end what it holds. One that cannot is not waited for when it is stopped."""

from __future__ import annotations

import time

from pdctl.errors import DeadlineError, PdctlError
from pdctl.fleet.model import Engine
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.foreign import is_foreign

# Seconds: deadline of a question, between two of them, and what no leader and no rank that lives is silent.
QUICK, GAP, SILENT = 3.0, 2.0, 5.0


def standstill(ctx: Context, engine: Engine) -> str:
    """Why it stands still, in words; "" for one that moves, is not there, or is of another kind.

    Two looks say it, the second one only where the first is suspicious: within QUICK + GAP + QUICK seconds.
    A leader that does not turn counts once it has stood for as long as a drain would take.
    """
    first = _silences(ctx, engine)
    if not first:
        return ""
    time.sleep(GAP)
    second = _silences(ctx, engine)
    grown = [what for what, age in second.items() if what in first and age - first[what] > GAP / 2]
    return f"{engine.name} stands still: {', '.join(grown)}" if grown else ""


def _silences(ctx: Context, engine: Engine) -> dict[str, float]:
    """What of it is silent -> since when, seconds."""
    if is_foreign(engine):
        return {}
    try:
        state = admin.get(ctx, engine.url, "/v1/state", QUICK)
    except DeadlineError:
        return {"its port is open and nothing answers": time.monotonic()}
    except PdctlError:
        return {}
    if state.get("status") == "starting":
        return {}
    ages = {f"rank {r['rank']} is not heard": r.get("heartbeat_age_s") for r in state.get("ranks") or ()}
    ages["its leader publishes nothing"] = state.get("snapshot_age_s")
    found = {what: float(age) for what, age in ages.items() if age is not None and age > SILENT}
    turned = (state.get("progress") or {}).get("loop_age_s")
    limit = (state.get("timeouts") or {}).get("drain") or {}
    if turned is not None and turned > float(limit.get("value") or SILENT):
        found["its scheduler does not turn"] = float(turned)
    return found
