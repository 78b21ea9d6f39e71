"""PD2xx: processes and units."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.process import (
    pd201_down,
    pd202_frozen,
    pd203_crash_loop,
    pd204_came_back,
    pd205_unsupervised,
    pd206_port_taken,
)

RULES: tuple[Rule, ...] = (
    pd201_down.RULE,
    pd202_frozen.RULE,
    pd203_crash_loop.RULE,
    pd204_came_back.RULE,
    pd205_unsupervised.RULE,
    pd206_port_taken.RULE,
)
