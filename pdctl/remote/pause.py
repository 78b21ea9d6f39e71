"""The supervisor's pause, kept on the control host beside the fleet's lock."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pdctl.fleet.model import Host
from pdctl.remote import pause_tool
from pdctl.remote.lock import span
from pdctl.remote.tool import call_tool
from pdctl.transport.base import Transport

_DOING = {
    "look": "looking for the supervisor's pause",
    "pause": "pausing the supervisor",
    "resume": "ending the supervisor's pause",
}


@dataclass(frozen=True)
class Pause:
    """`since` is Unix seconds of the control host; `left` seconds to go, None without an end."""

    by: str
    reason: str
    since: float
    left: float | None

    def words(self) -> str:
        until = f"for {span(self.left)} more" if self.left is not None else "until `pdctl resume`"
        return f"paused by {self.by} {until}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class PauseSwitch:
    """`attended` changes with every resume: a person has looked after the fleet."""

    host: Host
    way: Callable[[], Transport]

    def look(self) -> tuple[Pause | None, str]:
        """(the pause, the id of the last resume)."""
        answer = self._call("look")
        return _pause(answer), str(answer["attended"])

    def pause(self, by: str, reason: str, seconds: float | None) -> Pause:
        found = _pause(self._call("pause", by=by, reason=reason, seconds=seconds))
        return found or Pause(by, reason, 0.0, 0.0)

    def resume(self) -> bool:
        """Whether it was paused."""
        return bool(self._call("resume", attended=secrets.token_hex(6))["was"])

    def _call(self, verb: str, **ask: Any) -> dict[str, Any]:
        full = {"root": self.host.root, **ask}
        return call_tool(self.way(), self.host.tool_python, pause_tool, verb, full, _DOING[verb])


def _pause(answer: dict[str, Any]) -> Pause | None:
    found = answer["pause"]
    return None if found is None else Pause(found["by"], found["reason"], found["since"], found["left"])
