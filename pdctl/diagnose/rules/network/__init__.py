"""PD3xx: network, RDMA, NIXL and UCX."""

from __future__ import annotations

from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules.network import (
    pd301_unreachable,
    pd302_peers_apart,
    pd310_wrong_ucx,
)

RULES: tuple[Rule, ...] = (
    pd301_unreachable.RULE,
    pd302_peers_apart.RULE,
    pd310_wrong_ucx.RULE,
)
