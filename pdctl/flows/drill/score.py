"""The scoreboard of a run of drills, as values and as a document."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pdctl.exits import Exit


@dataclass
class Row:
    """One drill as it went. Times are seconds: `took` from the injection to the verdict, `within` what it may
    take, `undone` until everything served again, None when it did not.

    `detected` is "" when nothing was found that should lead; `led` is what led instead. `answered` of `asked`
    requests that are not the drill's victims. `skipped` is why it was not played, `wrong` what went wrong.
    """

    name: str
    subject: str = ""
    expected: tuple[str, ...] = ()
    within: float = 0.0
    evidence: str = ""
    detected: str = ""
    led: str = ""
    took: float | None = None
    undone: float | None = None
    put_back: list[str] = field(default_factory=list)
    spares: bool = True
    asked: int = 0
    answered: int = 0
    skipped: str = ""
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.wrong

    @property
    def said(self) -> str:
        """What came of it, on a line."""
        if self.skipped:
            return f"not played, {self.skipped}"
        if self.wrong:
            return f"WRONG, {'; '.join(self.wrong)}"
        return f"{self.detected} after {self.took:g} s" if self.took is not None else self.detected

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"ok": self.ok}


@dataclass
class Board:
    """`restored` is what an interrupted earlier run had left; `stopped` what stands behind an interrupt of
    this one, "" without one."""

    fleet: str
    rows: list[Row] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)
    stopped: str = ""

    @property
    def ok(self) -> bool:
        return not self.stopped and all(row.ok for row in self.rows)

    @property
    def exit(self) -> Exit:
        if self.stopped:
            return Exit.INTERRUPTED
        return Exit.OK if self.ok else Exit.FINDINGS

    def document(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "ok": self.ok,
            "exit": int(self.exit),
            "fleet": self.fleet,
            "drills": [row.document() for row in self.rows],
            "restored": self.restored,
            "left_alone": self.left_alone,
            "stopped": self.stopped,
        }
