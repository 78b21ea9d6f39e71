"""What the supervisor may do by itself: which finding, after how long, how often, which action.

The shipped policy is careful (profiles/catalogue/policy.toml). A policy.toml beside the fleet file holds only
what is to be otherwise, key by key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from datetime import datetime, time, tzinfo
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from pdctl.errors import ConfigError
from pdctl.fleet.names import nearest
from pdctl.fleet.problems import TomlFile
from pdctl.fleet.schema import Name, Strict, Text
from pdctl.fleet.shipped import shipped_text
from pdctl.fleet.tokens import token_of
from pdctl.supervisor.address import parsed

SHIPPED = "catalogue/policy.toml"


class Act(StrEnum):
    """From the mildest to the one that takes a whole cell out of service."""

    ABORT = "abort"
    RELINK = "relink"
    RESTART = "restart"
    CORDON = "cordon"
    CO_RESTART = "co-restart"


ACTS = tuple(Act)
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(ge=0.2, allow_inf_nan=False)]
# A turn feeds the watchdog, and there is one a look.
Often = Annotated[float, Field(ge=0.2, le=60.0)]
NoticeKind = Literal["opened", "action", "person", "closed"]
ActName = Literal["abort", "relink", "restart", "cordon", "co-restart"]
KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)
HARD: tuple[ActName, ...] = ("restart", "co-restart")


class SupervisorTable(Strict):
    """`mode`: act, dry-run (what would be done is noted as an action) or watch (incidents and notices)."""

    mode: Literal["act", "dry-run", "watch"]
    look_every: Often
    hosts_every: Positive
    diagnose_every: Positive
    confirm_gap: Positive
    settle: Seconds
    calm: Seconds
    person_after: Seconds
    flaps: Annotated[int, Field(ge=2)]
    flap_window: Positive
    canary: Positive
    page: str
    evidence: Annotated[int, Field(ge=1)]
    evidence_mb: Annotated[int, Field(ge=1)]


class Limits(Strict):
    """How often one kind of action may hit one target; see policy.toml."""

    per_hour: Annotated[int, Field(ge=0)]
    backoff: Seconds
    backoff_max: Seconds
    tries: Annotated[int, Field(ge=1)]

    def pause(self, done: int) -> float:
        """Seconds that must lie between the last of `done` actions and the next."""
        if done == 0:
            return 0.0
        return float(min(self.backoff * 2.0 ** min(done - 1, 30), self.backoff_max))


class Rung(Strict):
    """One action allowed for one finding. `proof` "wedge" asks for no progress and a failed canary."""

    after: Seconds
    enabled: bool = True
    proof: Literal["wedge", "none"] | None = None


class Quiet(Strict):
    """Daily hours in which `actions` are not done. `days` are those on which the hours begin."""

    begin: Annotated[str, Field(alias="from")]
    end: Annotated[str, Field(alias="to")]
    days: list[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]] = Field(default_factory=list)
    zone: str = "UTC"
    actions: list[ActName] = Field(default_factory=lambda: [*HARD])

    def covers(self, wall: float) -> bool:
        at = datetime.fromtimestamp(wall, _zone(self.zone))
        begin, end, now = _clock(self.begin), _clock(self.end), at.time()
        before_midnight = now >= begin if end <= begin else begin <= now < end
        if before_midnight and self._on(at.weekday()):
            return True
        return end <= begin and now < end and self._on((at.weekday() - 1) % 7)

    def _on(self, weekday: int) -> bool:
        return not self.days or _DAYS[weekday] in self.days


class Channel(Strict):
    """Where notices go: one of `webhook` (a URL) and `command` (words; the notice is JSON on stdin).

    `secret` is a 0600 file beside the fleet file, whose text is sent as a bearer token to the webhook.
    """

    webhook: Text | None = None
    command: list[Text] | None = None
    secret: Text | None = None
    on: list[NoticeKind] = Field(default_factory=lambda: [*KINDS])


class PolicyFile(Strict):
    version: Literal[1] = Field(alias="schema")
    supervisor: SupervisorTable
    actions: dict[ActName, Limits]
    on: dict[str, dict[ActName, Rung]]
    quiet: dict[Name, Quiet] = Field(default_factory=dict)
    notify: dict[Name, Channel] = Field(default_factory=dict)

    def rungs(self, code: str) -> list[tuple[Act, Rung]]:
        """What may be done about a finding, the mildest first; empty when nothing may."""
        allowed = self.on.get(code, {})
        return [
            (act, allowed[act.value]) for act in ACTS if act.value in allowed and allowed[act.value].enabled
        ]

    def needs_proof(self, act: Act, rung: Rung) -> bool:
        """A co-restart needs it unless the policy says in so many words that it does not."""
        return (rung.proof or ("wedge" if act is Act.CO_RESTART else "none")) == "wedge"

    def quiet_now(self, act: Act, wall: float) -> str:
        """The name of the quiet hours that keep `act` back now, "" for none."""
        return next((n for n, q in self.quiet.items() if act.value in q.actions and q.covers(wall)), "")


_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _clock(text: str) -> time:
    hours, _, minutes = text.partition(":")
    return time(int(hours), int(minutes or 0))


def _zone(name: str) -> tzinfo:
    return ZoneInfo(name)


@cache
def shipped() -> dict[str, Any]:
    return tomllib.loads(shipped_text("profiles", SHIPPED))


def load_policy(path: Path) -> PolicyFile:
    """The shipped policy with what `path`, which may be absent, says otherwise.

    ConfigError whose details are all problems as file:line: path: sentence.
    """
    if not path.exists():
        return PolicyFile.model_validate(shipped())
    file = TomlFile(path)
    own = file.data
    file.data = merged(shipped(), own)
    policy = file.validate(PolicyFile)
    _check(file, own)
    file.finish("bad_policy", f"The policy {path}")
    if policy is None:
        raise ConfigError("bad_policy", f"The policy {path} is not valid.")
    return policy


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables key by key, everything else as `over` has it."""
    found = dict(base)
    for key, value in over.items():
        below = found.get(key)
        both = isinstance(value, dict) and isinstance(below, dict)
        found[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return found


def _check_codes(file: TomlFile, codes: Iterable[str]) -> None:
    # Here, as a deploy reads a policy too, and one that names no finding needs none of their rules.
    from pdctl.diagnose.rules import BY_CODE

    for code in codes:
        if code not in BY_CODE:
            file.problem(("on", code), f"there is no such finding. {nearest(code, BY_CODE)}")


def _check(file: TomlFile, own: Mapping[str, Any]) -> None:
    """What types cannot see: addresses, codes that exist, hours and zones, one way for a notice."""
    if "schema" not in own:
        file.problem(("schema",), "is missing.")
    page = _tables(own).get("supervisor", {}).get("page")
    if isinstance(page, str) and page:
        try:
            parsed(page)
        except ConfigError as error:
            file.problem(("supervisor", "page"), error.message)
    if codes := _tables(own.get("on")):
        _check_codes(file, codes)
    for name, row in _tables(own.get("quiet")).items():
        for key in ("from", "to"):
            if key in row and not _is_time(row[key]):
                file.problem(("quiet", name, key), 'must be a time of day such as "22:30".')
        if "zone" in row and not _is_zone(row["zone"]):
            file.problem(("quiet", name, "zone"), 'is no time zone such as "Europe/Berlin".')
    for name, row in _tables(own.get("notify")).items():
        if ("webhook" in row) == ("command" in row):
            file.problem(("notify", name), "needs one of webhook and command.")
        if isinstance(url := row.get("webhook"), str) and (why := _no_url(url)):
            file.problem(("notify", name, "webhook"), why)
        if row.get("command") == []:
            file.problem(("notify", name, "command"), "must not be empty.")
        if isinstance(secret := row.get("secret"), str):
            try:
                token_of(file.path.parent / secret)
            except ConfigError as error:
                file.problem(("notify", name, "secret"), error.message)


def _tables(value: object) -> dict[str, dict[str, Any]]:
    rows = value if isinstance(value, dict) else {}
    return {name: row for name, row in rows.items() if isinstance(row, dict)}


def _no_url(text: str) -> str:
    """Why a notice cannot be sent there, "" when it can be tried."""
    if not text.startswith(("http://", "https://")):
        return "must begin with http:// or https://."
    try:
        at = urlsplit(text)
        whole = bool(at.hostname) and at.port != 0
    except ValueError:
        whole = False
    whole = whole and text.isprintable() and " " not in text
    return "" if whole else "is no address such as https://chat.example/hook."


def _is_time(text: object) -> bool:
    try:
        _clock(str(text))
    except ValueError:
        return False
    return ":" in str(text)


def _is_zone(name: object) -> bool:
    try:
        _zone(str(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
