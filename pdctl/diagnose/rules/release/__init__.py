"""PD7xx: releases, disks and hygiene of hosts."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.release import (
    pd701_disk,
)

RULES: tuple[Rule, ...] = (pd701_disk.RULE,)
