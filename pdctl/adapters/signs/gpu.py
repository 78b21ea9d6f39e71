"""GPU hardware: Xids of the kernel, and what drivers and libraries say of a sick GPU or NVLink."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign(
        "gpu.no_ipc",
        "custom_all_reduce",
        r"(?i)(?:cuda error|failed).*(?:invalid argument|invalid resource handle|not supported|peer access)",
    ),
    Sign("gpu.device_assert", "device-side assert triggered"),
    Sign("gpu.device_assert", "unspecified launch failure"),
    Sign("gpu.device_assert", "misaligned address", r"(?i)cuda|hip"),
    Sign("gpu.device_assert", "thread: [", r"block: \[.*thread: \[.*Assertion [`'](?P<what>.+?)[`'] failed"),
    # Not in NCCL's P2P: there it is the GPU of a neighbour that a container does not see.
    Sign("gpu.no_ordinal", "invalid device ordinal", r"^(?!.*(?:p2p\.cc|ShareableHandle))"),
    Sign("gpu.no_ipc", "transport/p2p", r"(?i)cuda failure"),
    Sign("gpu.no_ipc", "cudaIpc", r"(?i)(?:error|fail|invalid)"),
    Sign(
        "gpu.xid",
        "Xid",
        r"(?<!S)Xid\s*(?:\((?:PCI:)?(?P<device>[^)]*)\))?\s*:\s*(?P<xid>\d+)\b,?\s*(?P<text>.*)",
    ),
    Sign("gpu.xid", "Xid ", r"^(?!.*caused by previous)(?!.*Xid \().*\bXid (?P<xid>\d+)\b(?P<text>.*)"),
    Sign("gpu.sxid", "SXid", r"SXid\s*\((?:PCI:)?(?P<device>[^)]*)\): (?P<sxid>\d+),?\s*(?P<text>.*)"),
    Sign("gpu.needs_reset", "equires reset"),
    Sign("gpu.needs_reset", "eset required", r"^(?!.*Xid)(?i:.*gpu)"),
    Sign(
        "gpu.recovery",
        "ecovery action changed",
        r"from (?P<before>0x\w+ \([^)]*\)) to (?P<after>0x\w+ \([^)]*\))",
    ),
    Sign("gpu.lost", "fallen off the bus"),
    Sign("gpu.lost", "GPU is lost"),
    Sign("gpu.lost", "Unable to determine the device handle"),
    Sign("gpu.lost", "No devices were found"),
    Sign("gpu.ordinal", "nvalid device ordinal"),
    Sign("gpu.gsp", "GSP", r"(?i)halted|timeout|crash|failed|error"),
    Sign("gpu.nvlink", "over nvlink"),
    Sign("gpu.nvlink", "CUDA_ERROR_CONTAINED"),
    Sign("gpu.nvlink", "ErrorContained"),
    Sign("gpu.nvlink", "ncorrectable NVLink"),
    Sign("gpu.nvlink", "NVLINK_UNCORRECTABLE"),
    Sign("gpu.nvlink", "NvlinkUncorrectable"),
    Sign("gpu.ecc", "ncorrectable ECC"),
    Sign("gpu.ecc", "ECC_UNCORRECTABLE"),
    Sign("gpu.ecc", "Double Bit ECC", r"^(?!.*Xid)"),
    Sign("gpu.not_ready", "system not yet initialized"),
    Sign("gpu.not_ready", "SystemNotReady"),
    Sign("gpu.not_ready", "SYSTEM_NOT_READY"),
    Sign("gpu.not_ready", "nvidia-fabricmanager", r"(?i)failed|exited|inactive|not running"),
    Sign("gpu.driver_mismatch", "Driver/library version mismatch"),
    Sign("gpu.driver_mismatch", "API mismatch:", r"client has the version (?P<client>[\d.]+)"),
    Sign("gpu.driver_mismatch", "driver version is insufficient"),
    Sign("gpu.driver_mismatch", "driver on your system is too old", r"found version (?P<driver>\d+)"),
    Sign("gpu.throttled", "lowdown", r"(?P<why>(?:HW|SW) [\w ]*Slowdown)\s*:\s*Active\s*$"),
    Sign("gpu.amd", "amdgpu", r"(?i)ring \S+ timeout|GPU reset begin|GPU fault detected|uncorrectable|RAS"),
    Sign("gpu.pcie", "severity=", r"PCIe Bus Error: severity=Unco\w+"),
    Sign("kernel.not_readable", "read kernel buffer failed"),
    Sign("kernel.not_readable", "Operation not permitted", r"(?i)dmesg|kernel (?:buffer|log)|klogctl"),
)
