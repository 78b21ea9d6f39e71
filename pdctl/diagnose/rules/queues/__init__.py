"""PD6xx: timeouts, queues, KV and what the router counts."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.queues import (
    pd601_forgotten,
    pd602_pinned,
    pd603_backpressure,
    pd604_left_held,
    pd605_quarantine,
    pd606_fault_armed,
    pd607_not_granted,
)

RULES: tuple[Rule, ...] = (
    pd601_forgotten.RULE,
    pd602_pinned.RULE,
    pd603_backpressure.RULE,
    pd604_left_held.RULE,
    pd605_quarantine.RULE,
    pd606_fault_armed.RULE,
    pd607_not_granted.RULE,
)
