"""PD9xx: pdctl itself."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.itself import (
    pd901_suppression,
)

RULES: tuple[Rule, ...] = (pd901_suppression.RULE,)
