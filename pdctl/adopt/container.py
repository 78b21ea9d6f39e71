"""Engines that a command starts in a container: which of them a unit can hold, and what cannot be seen."""

from __future__ import annotations

from collections.abc import Sequence

from pdctl.adopt.notes import Grade
from pdctl.fleet.command import entry

_PROGRAMS = ("docker", "podman", "nerdctl")
_INSIDE = (
    "runs in a container: what its image, -e, --env-file and -v give it is in the command, and pdctl sees "
    "neither its environment nor its placement"
)
_AWAY = "leaves the container behind and ends, so a unit cannot hold the engine: "


def contained(words: Sequence[str]) -> tuple[Grade, str] | None:
    """How an engine's command goes by way of a container, None when it does not.

    OPEN is for what no unit can hold: its process ends, or lives on when the unit is stopped.
    """
    found = entry(words)
    front = list(words[: found[1]]) if found else []
    at = next((n for n, word in enumerate(front) if word.rpartition("/")[2] in _PROGRAMS), None)
    if at is None:
        return None
    program, rest = front[at].rpartition("/")[2], front[at + 1 :]
    verb = next((w for w in rest if w in ("run", "exec")), "")
    if verb == "exec":
        said = f"{program} exec starts it beside what the container runs, and a stop would leave it running"
        return Grade.OPEN, f"{said}; adopt what starts the container"
    options = rest[rest.index(verb) + 1 :] if verb else rest
    if _given(options, "d", "--detach"):
        return Grade.OPEN, f"{program} run -d {_AWAY}leave it out and adopt it again"
    if _given(options, "t", "--tty"):
        return (
            Grade.OPEN,
            f"{program} run -t wants a terminal, which a unit has not: leave it out, adopt it again",
        )
    return Grade.ASSUMED, _INSIDE


def _given(options: Sequence[str], letter: str, name: str) -> bool:
    """Whether a switch stands alone, among short ones (-itd), or as --name=true."""
    shorts = (w[1:] for w in options if w.startswith("-") and not w.startswith("--") and w[1:].isalpha())
    return name in options or f"{name}=true" in options or any(letter in w and len(w) <= 4 for w in shorts)
