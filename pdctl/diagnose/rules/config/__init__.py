"""PD1xx: configuration, and whether the two sides of a pair fit."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.config import (
    pd101_environment,
    pd105_timeout_order,
    pd106_fingerprint,
    pd110_page_size,
    pd111_unequal_tp,
    pd112_hash_mismatch,
    pd113_speculation,
    pd114_revision,
    pd115_prefill_unused,
    pd116_physical_block,
    pd117_kv_dtype,
    pd118_transport_differs,
    pd119_pair_differs,
    pd120_changed,
    pd121_says_unfit,
    pd122_not_found_again,
    pd123_profile_unreadable,
)

RULES: tuple[Rule, ...] = (
    pd101_environment.RULE,
    pd105_timeout_order.RULE,
    pd106_fingerprint.RULE,
    pd110_page_size.RULE,
    pd111_unequal_tp.RULE,
    pd112_hash_mismatch.RULE,
    pd113_speculation.RULE,
    pd114_revision.RULE,
    pd115_prefill_unused.RULE,
    pd116_physical_block.RULE,
    pd117_kv_dtype.RULE,
    pd118_transport_differs.RULE,
    pd119_pair_differs.RULE,
    pd120_changed.RULE,
    pd121_says_unfit.RULE,
    pd122_not_found_again.RULE,
    pd123_profile_unreadable.RULE,
)
