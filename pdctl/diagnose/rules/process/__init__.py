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
    pd210_oom_kill,
    pd211_killed,
    pd212_crashed,
    pd213_same_end,
    pd214_exception,
    pd215_no_library,
    pd216_orphans,
    pd217_gpu_memory_taken,
    pd218_mapped_elsewhere,
    pd219_bad_flag,
    pd220_limits,
    pd221_probe_kills,
    pd222_gpu_memory,
    pd223_slow_start,
    pd224_hung_task,
    pd225_start_hangs,
)

RULES: tuple[Rule, ...] = (
    pd201_down.RULE,
    pd202_frozen.RULE,
    pd203_crash_loop.RULE,
    pd204_came_back.RULE,
    pd205_unsupervised.RULE,
    pd206_port_taken.RULE,
    pd210_oom_kill.RULE,
    pd211_killed.RULE,
    pd212_crashed.RULE,
    pd213_same_end.RULE,
    pd214_exception.RULE,
    pd215_no_library.RULE,
    pd216_orphans.RULE,
    pd217_gpu_memory_taken.RULE,
    pd218_mapped_elsewhere.RULE,
    pd219_bad_flag.RULE,
    pd220_limits.RULE,
    pd221_probe_kills.RULE,
    pd222_gpu_memory.RULE,
    pd223_slow_start.RULE,
    pd224_hung_task.RULE,
    pd225_start_hangs.RULE,
)
