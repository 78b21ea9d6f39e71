"""PD5xx: pairing and incarnations."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.pairing import (
    pd501_stale_peer,
    pd502_not_linked,
    pd503_unknown_to_router,
    pd510_one_sided_restart,
    pd511_peer_load_crash,
    pd512_failure_matrix,
    pd513_stopped_under_transfers,
    pd514_blacklisted,
    pd520_not_told,
    pd521_prefill_leg_unchecked,
    pd522_send_skipped,
    pd523_odd_rank,
    pd524_unexplained,
    pd525_timer,
    pd526_removed_under_transfer,
    pd527_one_side_knows,
    pd528_not_registered,
    pd529_dp_rank,
    pd530_wrong_engine,
    pd531_other_key,
)

RULES: tuple[Rule, ...] = (
    pd501_stale_peer.RULE,
    pd502_not_linked.RULE,
    pd503_unknown_to_router.RULE,
    pd510_one_sided_restart.RULE,
    pd511_peer_load_crash.RULE,
    pd512_failure_matrix.RULE,
    pd513_stopped_under_transfers.RULE,
    pd514_blacklisted.RULE,
    pd520_not_told.RULE,
    pd521_prefill_leg_unchecked.RULE,
    pd522_send_skipped.RULE,
    pd523_odd_rank.RULE,
    pd524_unexplained.RULE,
    pd525_timer.RULE,
    pd526_removed_under_transfer.RULE,
    pd527_one_side_knows.RULE,
    pd528_not_registered.RULE,
    pd529_dp_rank.RULE,
    pd530_wrong_engine.RULE,
    pd531_other_key.RULE,
)
