"""PD4xx: GPUs and collectives."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.gpu import (
    pd410_nvlink,
    pd411_gpu_lost,
    pd412_needs_reset,
    pd413_gpu_memory,
    pd414_application_xid,
    pd415_driver,
    pd416_throttled,
    pd417_not_observable,
    pd418_amd_and_pcie,
    pd440_desync,
    pd441_stuck_kernel,
    pd442_spin,
    pd443_no_progress,
    pd444_one_rank,
    pd445_dummy_steps,
    pd446_watchdog,
    pd447_graph_buffers,
    pd448_no_arch,
    pd449_token_limits,
    pd450_graph_sizes,
    pd451_odd_rank,
    pd452_rank_absent,
)

RULES: tuple[Rule, ...] = (
    pd410_nvlink.RULE,
    pd411_gpu_lost.RULE,
    pd412_needs_reset.RULE,
    pd413_gpu_memory.RULE,
    pd414_application_xid.RULE,
    pd415_driver.RULE,
    pd416_throttled.RULE,
    pd417_not_observable.RULE,
    pd418_amd_and_pcie.RULE,
    pd440_desync.RULE,
    pd441_stuck_kernel.RULE,
    pd442_spin.RULE,
    pd443_no_progress.RULE,
    pd444_one_rank.RULE,
    pd445_dummy_steps.RULE,
    pd446_watchdog.RULE,
    pd447_graph_buffers.RULE,
    pd448_no_arch.RULE,
    pd449_token_limits.RULE,
    pd450_graph_sizes.RULE,
    pd451_odd_rank.RULE,
    pd452_rank_absent.RULE,
)
