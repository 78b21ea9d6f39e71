"""NIXL and UCX lines, from whichever engine prints them."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign("nixl.backend_error", "NIXL_ERR_BACKEND"),
    Sign(
        "nixl.refused", "NIXL_ERR_", r"NIXL_ERR_(?P<status>NOT_FOUND|NOT_SUPPORTED|INVALID_PARAM|MISMATCH)\b"
    ),
    Sign("nixl.creating", "createBackend"),
    Sign("nixl.creating", "create_backend"),
    Sign("nixl.creating", "reate backend"),
    Sign("nixl.created", "was instantiated", r"Backend \w+ was instantiated"),
    Sign("nixl.registering", "registerMem"),
    Sign("nixl.registering", "register_memory"),
    Sign("nixl.no_plugin", "getPluginParams", r"backend '(?P<backend>\w+)' not found"),
    Sign("nixl.no_plugin", "unsupported backend", r"unsupported backend '(?P<backend>\w+)'"),
    Sign("nixl.no_plugin", "No plugins available for"),
    Sign(
        "nixl.no_plugin", "libplugin_", r"libplugin_(?P<backend>\w+)\.so.*(?:cannot open|not found|[Ff]ailed)"
    ),
    Sign("nixl.no_plugin", "ailed to load plugin", r"plugin:? ['\"]?(?P<backend>\w+)"),
    Sign("nixl.no_library", "=> not found", r"(?P<library>lib[\w.+-]+) => not found"),
    Sign("nixl.hash_mismatch", "ompatibility hash mismatch"),
    Sign("nixl.slow_init", "ime to init xfer", r"(?P<ms>[\d.]+) ?ms"),
    Sign(
        "ucx.wrong_version",
        "UCP version is incompatible",
        r"required: >?=? ?(?P<required>[\d.]+),? actual:? ?(?P<actual>[\d.]+)",
    ),
    Sign("ucx.endpoint", "Unexpected UCX error", r"error: (?P<what>[A-Z][\w /]+)"),
    Sign("ucx.endpoint", "NIXL_ERR_REMOTE_DISCONNECT", r"(?P<what>NIXL_ERR_REMOTE_DISCONNECT)"),
    Sign("ucx.endpoint", "tcp_ep", r"failed: (?P<what>[A-Z][\w /]+)"),
    Sign("ucx.endpoint", "completion", r"UCX +ERROR .*completion.* with error.*?: (?P<what>[A-Z][\w ]+)"),
    Sign("nixl.posting", "postXferReq"),
    Sign("nixl.bad_metadata", "eserializ", r"(?i)fail"),
    Sign("ucx.no_cuda", "memory is detected as host"),
    Sign("ucx.no_cuda", "check that UCX is configured with CUDA support"),
    Sign(
        "ucx.no_transport",
        "available, please use one or more of",
        r"transports? (?P<what>'[\w',. ]+') (?:is|are) not available, please use one or more of: "
        r"(?P<have>.*)",
    ),
    Sign(
        "ucx.no_device",
        "available, please use one or more of",
        r"(?:network )?devices? (?P<what>'[\w',.: -]+') (?:is|are) not available, please use one or more of: "
        r"(?P<have>.*)",
    ),
    Sign(
        "verbs.bad_device",
        "nvalid IB device",
        r"devices?[^\[]*(?P<what>\[[^\]]*\])(?:.*?(?P<have>\[[^\]]*\]))?",
    ),
    Sign(
        "ucx.device_refused",
        "UCX",
        r"UCX +ERROR (?P<device>\w+)(?::\d+)?: ibv_\w*(?:modify|create)_qp.*"
        r"(?:No such device|Operation not permitted|Permission denied|Operation not supported)",
    ),
    Sign("ucx.device_refused", "ibv_query_gid(", r"ibv_query_gid\(dev=(?P<device>\w+).*failed"),
    Sign(
        "ucx.device_refused",
        "iface_open(",
        r"iface_open\((?:rc|dc|ud|srd|ib)\w*/(?:\w+-)?(?P<device>\w+)(?::\d+)?\) failed",
    ),
    Sign(
        "ucx.device_refused",
        "ibv_create_qp",
        r"ibv_create_qp\w* failed on (?P<device>\w+): (?:Cannot assign|No such device|Operation not)",
    ),
    Sign(
        "ucx.device_refused",
        "ibv_modify_qp failed",
        r"failed with (?:error )?(?:\d+ )?(?:No such device|Operation not permitted)"
        r"(?:.*on dev (?P<device>\w+))?",
    ),
    Sign("ucx.no_path", "no active messages transport", r"transport to (?P<peer>[^:]+)"),
    Sign("ucx.no_path", "Destination is unreachable"),
    Sign("ucx.no_path", "failed to select lane"),
    Sign("ucx.lanes", "cfg#", r"(?P<where>intra-node|inter-node|self)?\s*cfg#\d+\s+(?P<lanes>.*\(.*)"),
    Sign("ucx.lanes", "ep_cfg[", r"ep_cfg\[\d+\]:\s+(?P<lanes>.*\(.*)"),
    Sign("ucx.lane_used", "mlx5_", r"UCX +DATA.*?/?(?P<device>mlx5_\w+):?\d?"),
    Sign("ucx.tls", "UCX_TLS=", r"\bUCX_TLS=(?P<value>[\w,^]+)"),
    Sign("ucx.no_ipc", "cuIpcOpenMemHandle", r"(?i)fail|error|invalid|denied"),
    Sign(
        "ucx.no_ipc",
        "cuda_ipc",
        r"(?i)cuda_ipc.*(?:pid namespace|(?:open|map|import)\w* .*(?:fail|invalid|denied))",
    ),
    Sign("ucx.software", "software emulation"),
    Sign("ucx.listed", "Transport:", r"^#\s+Transport:\s+(?P<transport>\w+)"),
)
