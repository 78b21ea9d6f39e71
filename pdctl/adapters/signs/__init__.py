"""Log lines that mean something, one file per family, and the table of them all."""

from __future__ import annotations

from pdctl.adapters.signs import (
    answers,
    collective,
    errors,
    gpu,
    hostside,
    kernel,
    mooncake,
    nixl,
    pair,
    peer_load,
    process,
    rooms,
    router,
    sglang_pd,
    sockets,
    trtllm,
    vllm_pd,
    watchdog,
)
from pdctl.adapters.signs.sign import Sign, Table

SIGNS: tuple[Sign, ...] = (
    *answers.SIGNS,
    *collective.SIGNS,
    *errors.SIGNS,
    *hostside.SIGNS,
    *kernel.SIGNS,
    *gpu.SIGNS,
    *mooncake.SIGNS,
    *pair.SIGNS,
    *sockets.SIGNS,
    *nixl.SIGNS,
    *process.SIGNS,
    *router.SIGNS,
    *watchdog.SIGNS,
    *peer_load.SIGNS,
    *rooms.SIGNS,
    *sglang_pd.SIGNS,
    *trtllm.SIGNS,
    *vllm_pd.SIGNS,
)
TABLE = Table(SIGNS)
NAMES = frozenset(sign.name for sign in SIGNS)
