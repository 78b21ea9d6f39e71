"""The catalogue: every rule, in the order of its code. Codes are never reused."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules import (
    pd101_environment,
    pd105_timeout_order,
    pd106_fingerprint,
    pd201_down,
    pd202_frozen,
    pd203_crash_loop,
    pd204_came_back,
    pd205_unsupervised,
    pd206_port_taken,
    pd301_unreachable,
    pd302_peers_apart,
    pd401_clock,
    pd402_disk,
    pd501_stale_peer,
    pd502_not_linked,
    pd601_forgotten,
    pd602_pinned,
    pd603_backpressure,
    pd604_left_held,
    pd605_quarantine,
    pd606_fault_armed,
    pd607_not_granted,
)

CATALOGUE: tuple[Rule, ...] = (
    pd101_environment.RULE,
    pd105_timeout_order.RULE,
    pd106_fingerprint.RULE,
    pd201_down.RULE,
    pd202_frozen.RULE,
    pd203_crash_loop.RULE,
    pd204_came_back.RULE,
    pd205_unsupervised.RULE,
    pd206_port_taken.RULE,
    pd301_unreachable.RULE,
    pd302_peers_apart.RULE,
    pd401_clock.RULE,
    pd402_disk.RULE,
    pd501_stale_peer.RULE,
    pd502_not_linked.RULE,
    pd601_forgotten.RULE,
    pd602_pinned.RULE,
    pd603_backpressure.RULE,
    pd604_left_held.RULE,
    pd605_quarantine.RULE,
    pd606_fault_armed.RULE,
    pd607_not_granted.RULE,
)
BY_CODE: dict[str, Rule] = {rule.code: rule for rule in CATALOGUE}
