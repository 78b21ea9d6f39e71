"""Collectives: NCCL and its relatives, their watchdogs, their counters, and the shared memory they need."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign(
        "collective.timeout",
        "Watchdog caught collective operation timeout",
        r"\[?Rank (?P<rank>\d+)\]?.*?SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)",
    ),
    Sign(
        "collective.last_work",
        "last enqueued",
        r"\[?Rank (?P<rank>\d+)\]?.*last enqueued (?:NCCL )?work: (?P<enqueued>\d+)"
        r".*last completed (?:NCCL )?work: (?P<completed>\d+)",
    ),
    Sign(
        "collective.launched",
        "up to operation",
        r"(?P<ranks>\d+|[Aa]ll) ranks? ha(?:ve|s) launched up to operation (?P<count>\d+)",
    ),
    Sign("collective.launched", "RAS", r"rank (?P<rank>\d+).*?launched[ =:]+(?P<count>\d+)"),
    Sign("collective.absent", "clients joined", r"(?P<have>\d+)/(?P<want>\d+) clients joined"),
    Sign("collective.gloo_timeout", "waiting for recv operation", r"(?:gloo|Gloo|Timed out)"),
    Sign(
        "collective.gloo_timeout",
        "Timed out waiting",
        r"waiting (?P<ms>\d+) ?ms for (?:recv|send) operation to complete",
    ),
    Sign("collective.no_mesh", "connectFullMesh failed"),
    Sign("collective.still_loading", "ther ranks that didn't finish loading"),
    Sign("nccl.warn", "NCCL WARN", r"NCCL WARN (?P<what>.+)"),
    Sign("nccl.version", "nccl==", r"nccl==(?P<version>[\d.]+)"),
    Sign("nccl.failed", "NCCL error", r"^(?!.*\braise )"),
    Sign("nccl.warn", "EI0006", r"EI0006: (?:\[PID: \d+\] [\d:.-]+ )?(?P<what>.+)"),
    Sign("nccl.failed", "OPS function error", r"Hccl\w+"),
    Sign("nccl.failed", "ncclSystemError"),
    Sign("nccl.failed", "ncclUnhandledCudaError"),
    Sign("nccl.failed", "ncclRemoteError"),
    Sign("nccl.failed", "ncclInternalError"),
    Sign("collective.memory_paused", "release_memory_occupation"),
    Sign("collective.memory_resumed", "resume_memory_occupation"),
    Sign("collective.no_arch", "no kernel image is available for execution"),
    Sign("collective.no_arch", "is not compatible with the current PyTorch installation"),
    Sign("collective.arch_list", "ARCH_LIST", r"ARCH_LIST[^=:]*[=:]\s*(?P<archs>[\w.+; ,]+)"),
    Sign("shm.nccl", "ncclShmOpen"),
    Sign("shm.nccl", "posix_fallocate failed"),
    Sign("shm.nccl", "Error while creating shared memory segment", r"\(size (?P<size>\d+)\)"),
    Sign("shm.nccl", "/dev/shm/nccl-", r"(?i)fail|error|unable"),
    Sign("shm.full", "No space left on device", r"(?:/dev/shm|shared memory|shm_open|psm_)"),
)
