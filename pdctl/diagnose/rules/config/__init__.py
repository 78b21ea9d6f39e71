"""PD1xx: configuration, and whether the two sides of a pair fit."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.config import (
    pd101_environment,
    pd105_timeout_order,
    pd106_fingerprint,
)

RULES: tuple[Rule, ...] = (
    pd101_environment.RULE,
    pd105_timeout_order.RULE,
    pd106_fingerprint.RULE,
)
