"""PD7xx: releases, disks and hygiene of hosts."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.release import (
    pd701_disk,
    pd710_memory_grows,
    pd711_shm,
    pd713_no_space,
    pd714_numa,
    pd715_cpu,
    pd716_not_allowed,
    pd720_clock_and_leases,
)

RULES: tuple[Rule, ...] = (
    pd701_disk.RULE,
    pd710_memory_grows.RULE,
    pd711_shm.RULE,
    pd713_no_space.RULE,
    pd714_numa.RULE,
    pd715_cpu.RULE,
    pd716_not_allowed.RULE,
    pd720_clock_and_leases.RULE,
)
