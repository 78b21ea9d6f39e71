"""Which deadlines an engine of another kind has for a transfer, with the values that it runs with."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.adapters.launch.read import from_command
from pdctl.adapters.timers import timers
from pdctl.errors import ConfigError
from pdctl.fleet.catalogue.find import find
from pdctl.fleet.catalogue.timeouts import deadlines
from pdctl.fleet.model import Engine, Fleet
from pdctl.fleet.profile import Value, engine_env

# Deadlines that a request which only its prefill gets can meet, by kind: what it then waits for.
INERT = {
    "sglang": {"inflight": "its inflight queue", "handshake": "decode's metadata"},
    "vllm": {"inflight": "its KV to be read"},
}
PROFILE, DEFAULT = "profile", "default"


@dataclass(frozen=True)
class Watchdog:
    """`deadline` is the catalogue's name, `name` the engine's: a variable, or a launch argument, that says
    `value` seconds. `where` that stands: PROFILE, DEFAULT, or other words for what pdctl does not edit.
    """

    deadline: str
    name: str
    value: float
    where: str

    @property
    def settable(self) -> bool:
        return self.where in (PROFILE, DEFAULT)


def watchdogs(fleet: Fleet, engine: Engine) -> list[Watchdog]:
    """Those in force on `engine`, the catalogue's order; a fork's is there when the profile names it.

    ConfigError for one that is set to no number.
    """
    found = []
    for deadline in ("inflight", "handshake", "transfer"):
        for name in deadlines()[deadline].names.get(engine.kind, ()):
            if one := _in_force(fleet, engine, deadline, name):
                found.append(one)
                break
    return found


def absent(kind: str, deadline: str) -> str:
    """Why an engine of `kind` has no such deadline, as the catalogue says it."""
    row = deadlines()[deadline]
    return row.absent.get(kind) or row.notes.get(kind, "")


def _in_force(fleet: Fleet, engine: Engine, deadline: str, name: str) -> Watchdog | None:
    values = engine_env(fleet, engine)
    if name in values:
        where = PROFILE if values[name].profile else "the fleet file"
        return Watchdog(deadline, name, _seconds(values[name]), where)
    if name.startswith("-"):
        return _argument(engine, deadline, name, {n: v.value for n, v in values.items()})
    row = find(name)
    if row is None or row.fork or not row.read_by(engine.role) or not isinstance(row.default, float):
        return None
    return Watchdog(deadline, name, row.default, DEFAULT)


def _seconds(value: Value) -> float:
    try:
        return float(value.value)
    except ValueError:
        what = f"{value.place}: {value.env}={value.value} is no number of seconds."
        raise ConfigError("bad_value", what, "`pdctl profile check` lists all that is wrong.") from None


def _argument(engine: Engine, deadline: str, name: str, environ: dict[str, str]) -> Watchdog | None:
    """vLLM's lease is a key inside its --kv-transfer-config."""
    given = timers(engine.kind, engine.role, from_command(engine.spec.command or []), environ)
    lease = given.get("kv_lease")
    return Watchdog(deadline, name, lease.value, "its command") if lease is not None else None
