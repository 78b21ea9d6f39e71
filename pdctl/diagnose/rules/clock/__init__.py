"""PD8xx: clocks and versions."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.clock import (
    pd801_skew,
    pd810_versions,
)

RULES: tuple[Rule, ...] = (
    pd801_skew.RULE,
    pd810_versions.RULE,
)
