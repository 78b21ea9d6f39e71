"""RDMA verbs and Mooncake: queue pairs, memory regions, GIDs, completions."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

_WHY = (
    r"(?P<why>Cannot allocate memory|Bad address|Invalid argument|Input/output error|Operation not permitted|"
    r"No space left on device|Operation not supported|Unknown error \d+)"
)

# A doorbell page of the NIC that could not be had.
_NO_PAGE = r"(?i)(?:cannot|fail\w*|unable|no)\b.{0,40}\b\w*_?uar\b|\b\w*_?uar\b.{0,40}(?:fail|cannot|exhaust)"

SIGNS = (
    Sign("verbs.register_failed", "ailed to register memory", rf"(?:.*{_WHY})?(?:.*\[(?P<errno>\d+)\])?"),
    Sign("verbs.register_failed", "ibv_reg_mr", rf"ibv_reg_mr.*failed.*{_WHY}"),
    Sign("verbs.register_failed", "ibv_create_cq", rf"failed.*{_WHY}"),
    Sign("verbs.register_failed", "ibv_reg_dmabuf_mr", rf"failed.*{_WHY}"),
    Sign("verbs.memlock", "max locked memory", r"(?:ulimit -l|current: (?P<current>\d+) kbytes)"),
    Sign("verbs.memlock", "RLIMIT_MEMLOCK"),
    Sign("verbs.exhausted", "uar", _NO_PAGE),
    Sign("verbs.exhausted", "UAR", _NO_PAGE),
    Sign("verbs.no_object", "devx_obj_create", r"devx_obj_create\((?P<what>\w+)\) failed on (?P<device>\w+)"),
    Sign("verbs.no_object", "create_cq/qp failed"),
    Sign("verbs.no_object", "ibv_create_cq", r"ibv_create_cq\w*\(.*fail(?!.*Cannot allocate memory)"),
    Sign("verbs.exhausted", "create_qp", r"(?i)fail.*Cannot allocate memory|errno\W+12\b"),
    Sign("verbs.size", "max_mr_size", r"max_mr_size\D+(?P<limit>\d+)"),
    Sign(
        "verbs.rtr_failed",
        "QP to RTR",
        r"(?:.*(?P<why>Connection timed out|Invalid argument|No route to host|Network is unreachable))?"
        r"(?:.*\[(?P<errno>\d+)\])?",
    ),
    Sign(
        "verbs.rtr_failed",
        "ibv_modify_qp failed",
        r"failed with (?:error )?(?:\d+ )?(?P<why>Connection timed out|Invalid argument|No route to host|"
        r"Network is unreachable)",
    ),
    Sign(
        "verbs.gid",
        "GID_Index",
        r"device: (?P<device>[\w.-]+),.*GID_Index (?P<index>\d+)\) (?P<gid>[\da-f:]+)",
    ),
    Sign(
        "verbs.rtr_failed",
        "ibv_create_ah",
        r"dgid=(?P<gid>[\w:.]+).*on (?P<device>\w+) failed: (?P<why>[A-Z][\w /]+)",
    ),
    Sign("verbs.packet", "received packet mismatch"),
    Sign("verbs.no_peermem", "nvidia-peermem", r"(?i)without|require|missing|not (?:loaded|found|available)"),
    Sign("verbs.no_peermem", "nvidia_peermem", r"(?i)without|require|missing|not (?:loaded|found|available)"),
    Sign("verbs.no_gid", "No suitable GID found"),
    Sign("verbs.no_gid", "GID is NULL"),
    Sign("verbs.no_nic", "No available RNIC"),
    Sign("verbs.no_nic", "No RDMA devices found"),
    Sign("verbs.no_nic", "ibv_get_device_list", r"fail|No such"),
    Sign(
        "verbs.completion",
        "error",
        r"(?P<what>local length|remote invalid request|local protection|"
        r"local access violation(?: work queue)?|"
        r"remote access|local QP operation|transport retry counter exceeded|RNR retry counter exceeded|"
        r"remote operation) error",
    ),
    Sign("verbs.completion", "retry", r"(?P<what>(?:transport|RNR) retry (?:counter|count) exceeded)$"),
    # NCCL: "Got completion with error 12", newer ones "from peer ADDRESS<PORT> with status=12"
    Sign(
        "verbs.completion",
        "Got completion ",
        r"Got completion (?:from peer (?P<peer>[^\s<]+)\S* )?with (?:error|status)[ =](?P<status>\d+)",
    ),
    # UCX: "Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)"
    Sign("verbs.completion", "synd 0x", r"(?P<what>[A-Z][a-z][\w -]*?) on \w+:\d+/(?P<fabric>RoCE|IB)\b"),
    Sign("verbs.reconnect", "e-establish", r"(?i)connection|endpoint|QP|rdma"),
    Sign("verbs.reconnect", "eestablish", r"(?i)connection|endpoint|QP|rdma"),
    Sign("verbs.reconnect", "etired the existing endpoint"),
    Sign("verbs.reconnect", "peer QPN", r"(?i)differ|mismatch|changed"),
    Sign("mooncake.no_gpu_path", "tcp_transport", r"(?:write|read)Body failed.*Bad address"),
    Sign("mooncake.no_gpu_path", "nvlink_transport", r"Requested address \S+ not found"),
    Sign("mooncake.unsupported", "NotSupportedTransport"),
    Sign("mooncake.batch_timeout", "ailed to complete transfers", r"after (?P<seconds>\d+) seconds"),
    Sign("mooncake.batch_timeout", "ransfer timeout to", r"to(?:.*configuring the (?P<timer>[A-Z_]+))?"),
    Sign("mooncake.transport", "installTransport", r"type=(?P<kind>\w+)"),
    Sign("mooncake.metadata_refused", "nexpected code in http response", r"code: (?P<code>4\d\d|5\d\d)"),
    Sign("transfer.no_connection", "ailed to connect to target"),
    Sign("transfer.no_connection", "ailed to connect to segment"),
    Sign("transfer.no_connection", "annot make connection for endpoint"),
    Sign("transfer.no_connection", "ailed to open segment", r"^(?!.*(?i:metadata))"),
    Sign(
        "mooncake.no_metadata",
        "etadata",
        r"(?i)fail\w*.*metadata.*(?:server|url|http|etcd)|metadata.*(?:refused|timed out)",
    ),
)
