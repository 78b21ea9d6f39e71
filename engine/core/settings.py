"""Every value an operator may change, declared once: environment name, default, unit and reason.

An unknown `PD_*` variable or a value that does not parse stops the start with a sentence that names
the variable and the nearest known one. Timeouts are seconds on the leader's monotonic clock.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from engine.core.errors import ConfigError

Source = Literal["default", "env", "admin"]
SWITCH = "switch"


@dataclass(frozen=True)
class Setting:
    """One declared value. `side` is who reads it: prefill, decode, both or router."""

    name: str
    env: str
    default: float
    low: float
    high: float
    unit: str
    side: str
    live: bool
    reason: str


def _t(
    name: str, env: str, default: float, side: str, reason: str, *, live: bool = True, low: float = 0.05
) -> Setting:
    return Setting(name, env, default, low, 86400.0, "s", side, live, reason)


def _switch(name: str, env: str, default: int, side: str, reason: str, *, live: bool = True) -> Setting:
    """0 is off, 1 is on."""
    return Setting(name, env, default, 0.0, 1.0, SWITCH, side, live, reason)


SETTINGS: tuple[Setting, ...] = (
    _t("connect", "PD_CONNECT_TIMEOUT", 5, "decode", "TCP connect to a prefill's link port."),
    _t("handshake", "PD_HANDSHAKE_TIMEOUT", 15, "both", "Connect to both sides' agents added and warm."),
    _t("prealloc", "PD_DECODE_PREALLOC_TIMEOUT", 100, "decode", "Wait on decode for free pages or a slot."),
    _t(
        "transfer",
        "PD_DECODE_TRANSFER_TIMEOUT",
        100,
        "decode",
        "Silence of prefill about a room whose KV decode asked for, but for the prompt's wait for its turn.",
    ),
    _t(
        "inflight",
        "PD_PREFILL_INFLIGHT_TIMEOUT",
        120,
        "prefill",
        "End of prefill until the KV was handed over; the watchdog of the inflight queue.",
    ),
    _t("start", "PD_START_TIMEOUT", 900, "both", "Start of the ranks until the model is up.", live=False),
    _t(
        "queue",
        "PD_QUEUE_TIMEOUT",
        300,
        "both",
        "Wait for a first place in a batch; on decode, for prefill to begin with a prompt.",
    ),
    _t("drain", "PD_DRAIN_TIMEOUT", 30, "both", "Drain until what still runs is failed.", low=0.0),
    _t("heartbeat", "PD_HEARTBEAT_TIMEOUT", 5, "both", "Silence on a link until its peer counts as lost."),
    _t(
        "rank",
        "PD_RANK_TIMEOUT",
        20,
        "both",
        "Silence of a rank, or of the API process, until their group is ended.",
        live=False,
    ),
    _t(
        "step",
        "PD_STEP_TIMEOUT",
        120,
        "both",
        "One turn of the scheduler loop, or work without a step, until its group is ended.",
        live=False,
    ),
    _switch(
        "checksum",
        "PD_KV_CHECKSUM",
        0,
        "decode",
        "Checksums of a prompt's KV, made and verified. Off, for both sides read all KV once more.",
    ),
    _switch(
        "prefix",
        "PD_PREFIX_CACHE",
        1,
        "prefill",
        "A prompt takes over the KV of what it has in common with the beginning of an earlier one.",
    ),
    Setting(
        "index_check",
        "PD_INDEX_K_CHECK",
        64,
        0,
        1e6,
        "steps",
        "both",
        False,
        "Steps from a sample of index-K to the next; with 0 none, and what arrives is not verified.",
    ),
    Setting(
        "target_ctas",
        "PD_DECODE_TARGET_CTAS",
        65536,
        1,
        65536,
        "CTAs",
        "both",
        False,
        "CTAs of a GPU that decode attention may share a batch's context among; it can only lower them.",
    ),
    _switch(
        "overlap",
        "PD_MULTI_STREAM_OVERLAP",
        1,
        "both",
        "Work of a step that needs no order runs on several streams of a GPU at once.",
        live=False,
    ),
    _switch(
        "graphs",
        "PD_DECODE_GRAPHS",
        1,
        "both",
        "Decode steps of a GPU are captured as graphs when a rank starts, where the model's can be.",
        live=False,
    ),
    _t("router_total", "PD_ROUTER_TOTAL_TIMEOUT", 600, "router", "One request from admission to its end."),
    _t(
        "router_idle",
        "PD_ROUTER_IDLE_TIMEOUT",
        150,
        "router",
        "Silence of both legs of one request, which no engine says to wait for its turn.",
    ),
    _t("router_hold", "PD_ROUTER_HOLD_TIMEOUT", 180, "router", "A request held at admission."),
    _t("router_pair", "PD_ROUTER_PAIR_TIMEOUT", 60, "router", "A request for which no pair is usable."),
    Setting(
        "router_tries",
        "PD_ROUTER_TRIES",
        3,
        1,
        100,
        "tries",
        "router",
        True,
        "Pairs that one request may lose, restarts that were meant not counted; 1 resumes nothing.",
    ),
)
BY_NAME = {s.name: s for s in SETTINGS}
BY_ENV = {s.env: s for s in SETTINGS}
# The order in which the deadlines of one request must fire, the inner one first: (inner, outer, why). What
# the client itself allows is above all of them and is known to nobody here.
ORDER: tuple[tuple[str, str, str], ...] = (
    ("transfer", "inflight", "decode must give up first, so that no page is freed while it still reads"),
    ("prealloc", "inflight", "a wait for free decode pages is legitimate and must end under its own name"),
    ("prealloc", "queue", "a prompt that is not computed because decode is full must not fail before decode"),
    (
        "inflight",
        "router_idle",
        "the router must not call a request silent while its transfer may still finish",
    ),
    ("router_idle", "router_total", "a silent request must be named as silent, not as too long"),
    ("router_pair", "router_total", "a request that waits for an engine must fail for the lack of one"),
)
# Variables that are not timeouts and are read elsewhere, so that they are known names here.
OTHER_ENV = ("PD_FLEET_TOKEN_FILE", "PD_DRILL_TOKEN_FILE", "PD_LOG_LEVEL")


@dataclass(frozen=True)
class Effective:
    """A setting's value in force, where it came from, and since when (Unix seconds)."""

    setting: Setting
    value: float
    source: Source
    changed_at: float = 0.0


def parse(setting: Setting, text: str, where: str) -> float:
    """The number in `text`, or ConfigError naming `where` (a variable or an admin call)."""
    known = {SWITCH: "0 or 1", "s": "a number of seconds"}
    what = known.get(setting.unit, f"a whole number of {setting.unit}")
    try:
        value = float(text)
    except ValueError:
        raise ConfigError("bad_value", f"{where}: {text!r} is not {what}.") from None
    if (setting.unit == SWITCH and value not in (0.0, 1.0)) or (setting.unit not in known and value % 1):
        raise ConfigError("bad_value", f"{where}: {value:g} is not {what}.")
    if not setting.low <= value <= setting.high:
        raise ConfigError(
            "bad_value", f"{where}: {value:g} is outside {setting.low:g}..{setting.high:g} {setting.unit}."
        )
    return value


class Settings:
    """The values in force. Reads are lock-free dict look-ups; `set` replaces one entry whole."""

    def __init__(self, values: dict[str, Effective]) -> None:
        self._values = values

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Resolve defaults and `PD_*` variables; ConfigError on an unknown or unparsable one."""
        known = [*BY_ENV, *OTHER_ENV]
        for key in env:
            if key.startswith("PD_") and key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}."
                raise ConfigError("unknown_variable", f"{key} is not a variable of this engine.", hint)
        values = {}
        for s in SETTINGS:
            raw = env.get(s.env)
            value = s.default if raw is None else parse(s, raw, s.env)
            values[s.name] = Effective(s, value, "default" if raw is None else "env")
        return cls(values)

    def check_order(self, role: str) -> None:
        """ConfigError when two deadlines are in the wrong order, as far as this process knows both.

        It knows what its environment says and the defaults of what a process of `role` reads itself. Only a
        start is refused: a drill inverts the order on purpose, live.
        """
        sides = ("router",) if role == "router" else ("both", role)
        known = {n for n, e in self._values.items() if e.source == "env" or e.setting.side in sides}
        for inner, outer, why in ORDER:
            if {inner, outer} <= known and self[inner] >= self[outer]:
                said = [f"{e.setting.env}={e.value:g}" for e in (self._values[inner], self._values[outer])]
                text = f"{said[0]} must be below {said[1]}: {why}."
                raise ConfigError("out_of_order", text, "The order of timeouts is in docs/settings.md.")

    def __getitem__(self, name: str) -> float:
        return self._values[name].value

    def set(self, name: str, value: float, now: float) -> Effective:
        """Change a live value; ConfigError for an unknown name, a bad value or one read only at start."""
        setting = BY_NAME.get(name) or BY_ENV.get(name)
        if setting is None:
            near = difflib.get_close_matches(name, [*BY_NAME, *BY_ENV], 1)
            hint = f"Did you mean {near[0]}?" if near else ""
            raise ConfigError("unknown_timeout", f"{name} is not a timeout of this engine.", hint)
        if not setting.live:
            raise ConfigError("not_live", f"{setting.env} is read at start; restart to change it.")
        value = parse(setting, str(value), setting.env)
        effective = replace(self._values[setting.name], value=value, source="admin", changed_at=now)
        self._values[setting.name] = effective
        return effective

    def set_all(self, values: Mapping[str, float], now: float) -> None:
        """Change all of these or, with a ConfigError, none."""
        trial = Settings(dict(self._values))
        for name, value in values.items():
            trial.set(name, value, now)
        self._values.update(trial._values)

    def document(self) -> dict[str, dict[str, object]]:
        """The `timeouts` object of /v1/state."""
        return {
            name: {
                "value": e.value,
                "unit": e.setting.unit,
                "env": e.setting.env,
                "source": e.source,
                "side": e.setting.side,
                "live": e.setting.live,
                "changed_at": e.changed_at or None,
            }
            for name, e in self._values.items()
        }
