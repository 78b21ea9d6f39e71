"""The sentence with which a process ended, out of the end of its log; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pdctl.units.logfile import MARK, STARTED

# What pdctl's keeper and systemd write between the lines of the process itself.
_SUPERVISOR = re.compile(
    rf"{re.escape(MARK)}"
    r"|^\S+\.service: |^(?:Starting|Started|Stopping|Stopped|Failed to start|Scheduled restart job)\b"
)
_STARTS = re.compile(rf"{re.escape(MARK)} \S+ {STARTED} |^Starting .*\bpdctl ")
# The bundled engine's logger, and how it ends before it has one; then the word that it ends with.
_ERROR = re.compile(r"^(?:[\d-]+ [\d:,]+ (?:ERROR|CRITICAL) [\w.]+|engine): (?P<said>.+)$")
# What UCX says by itself, above the bare code that NIXL makes of it.
_UCX = re.compile(r"\bUCX +(?:ERROR|FATAL|WARN +(?=.* is not available)) *(?P<said>.+)")
_NIXL = re.compile(r"nixl\w*Error|NIXL_ERR_")
_ENDS = re.compile(r"^\S+ ends: (?P<why>.+?) \(exit \d+ \w+\)$")


def last_life(lines: Sequence[str]) -> list[str]:
    """The last life that wrote anything, from its start; all of `lines` where they do not reach back to one.

    A process that its supervisor has just started anew has written nothing yet: the life before it tells why.
    """
    starts = [n for n, line in enumerate(lines) if _STARTS.search(line)]
    for start in reversed(starts):
        if any(map(_own, lines[start:])):
            return list(lines[start:])
    return list(lines)


def _own(line: str) -> bool:
    return bool(line.strip()) and not _SUPERVISOR.search(line)


def last_words(lines: Sequence[str]) -> str:
    """The last error that the process's last life logged, else the last line that it wrote; "" for none.

    An error of NIXL is a code without a reason: UCX's first line goes before it.
    """
    own = list(filter(_own, last_life(lines)))
    errors = [found["said"] for line in own if (found := _ERROR.match(line))]
    said = errors[-1] if errors else own[-1].strip() if own else ""
    ends = _ENDS.match(said)
    words = (ends["why"] if ends else said).rstrip(".")
    told = (found["said"] for line in own if (found := _UCX.search(line)))
    reason = next(told, "").strip().rstrip(".") if _NIXL.search(words) else ""
    return f"UCX: {reason}; then {words}" if reason else words
