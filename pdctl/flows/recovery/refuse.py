"""What must not be built on: a profile as a run that did not come to its end left it."""

from __future__ import annotations

from pathlib import Path

from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet
from pdctl.flows.recovery.record import read


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


def _text(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None
