"""Which timer of which engine a wait of so many seconds was; pure."""

from __future__ import annotations

from pdctl.adapters.picture import Timeout
from pdctl.adapters.timers import TIMERS, timers
from pdctl.diagnose.facts import EngineView

WAITS = {
    "bootstrap": "the prefill's wait for decode's handshake",
    "waiting": "decode's wait for the prefill's KV",
    "transfer": "the bound on a transfer in flight",
    "kv_lease": "the lease on the KV that the prefill keeps for decode",
    "kv_hold": "how long the prefill keeps KV for decode",
    "kv_ttl": "how long decode keeps blocks that wait for a push",
}
_OF_STATE = {"Bootstrapping": "bootstrap", "WaitingForInput": "waiting", "Transferring": "waiting"}
_NEAR = 0.6  # seconds between a timer's value and what a line says of it
_OLD_HOLD = 480.0  # vLLM before leases


def of(view: EngineView) -> dict[str, Timeout]:
    """Its timers in force, by the settings and variables that are shown, else their defaults."""
    seen = view.traces
    found = timers(seen.kind, view.role, seen.settings, seen.environ)
    return found | {
        t.name: Timeout(t.name, t.default or _OLD_HOLD, t.source, "default", False)
        for t in TIMERS.get(seen.kind, ())
        if t.name not in found and t.name in WAITS and view.role in t.roles
    }


def named(view: EngineView, seconds: float, state: str = "") -> Timeout | None:
    """The timer that ended a wait of `seconds`: by the state that the line names, else by its value."""
    timers_of = of(view)
    if state in _OF_STATE:
        return timers_of.get(_OF_STATE[state])
    return next((t for n, t in timers_of.items() if n in WAITS and abs(t.value - seconds) < _NEAR), None)


def words(view: EngineView, seconds: float, state: str = "") -> str:
    timer = named(view, seconds, state)
    return f"the timer {timer.env}, {WAITS[timer.name]}" if timer else "the same timer each time"
