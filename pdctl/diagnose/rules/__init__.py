"""The catalogue: every rule, in the order of its code; a folder for each hundred. Codes are never reused."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules import clock, config, gpu, itself, network, pairing, process, queues, release

_FAMILIES = (config, process, network, gpu, pairing, queues, release, clock, itself)
CATALOGUE: tuple[Rule, ...] = tuple(rule for family in _FAMILIES for rule in family.RULES)
BY_CODE: dict[str, Rule] = {rule.code: rule for rule in CATALOGUE}
