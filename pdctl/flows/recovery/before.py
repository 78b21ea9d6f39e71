"""What a deploy must not build on: what a run that did not come to its end has left on the fleet."""

from __future__ import annotations

from pathlib import Path

from pdctl.errors import ConfigError, UnreachableError
from pdctl.fleet.model import Fleet
from pdctl.flows.context import Context
from pdctl.flows.recovery.record import read
from pdctl.flows.recovery.restore import restore


def refuse_half_done(fleet: Fleet) -> None:
    """ConfigError when a profile still has the text of such a run: a deploy would bring what was never proved
    into force. PdctlError when the record cannot be understood."""
    record = read(fleet)
    changed = record.files if record is not None else {}
    left = [Path(file).name for file, (_, now) in changed.items() if _text(Path(file)) == now]
    if left:
        said = f"{', '.join(left)} is as a `pdctl tune-timeout` wrote it that has not come to its end."
        hint = "Run `pdctl resume`: it puts everything back as it was; then deploy."
        raise ConfigError("half_done", said, hint)


def undone_first(fleet: Fleet) -> tuple[str, ...]:
    """What the plan says of it."""
    record = read(fleet)
    if record is None or record.deploys:
        return ()
    return ("What an interrupted run has set on engines for the moment is put back first.",)


def undo_first(ctx: Context) -> None:
    """Put it back: an armed fault would take the canary, a short deadline healthy requests. A unit that is
    silent keeps its part and the record stays; the deploy may be what mends it."""
    record = read(ctx.fleet)
    if record is None or record.deploys:
        return
    try:
        done = restore(ctx).done
    except UnreachableError as error:
        ctx.say(f"{error.message} `pdctl resume` puts that back.")
        return
    for line in done:
        ctx.say(f"put back first: {line}")


def _text(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None
