"""PD5xx: pairing and incarnations."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.pairing import (
    pd501_stale_peer,
    pd502_not_linked,
)

RULES: tuple[Rule, ...] = (
    pd501_stale_peer.RULE,
    pd502_not_linked.RULE,
)
