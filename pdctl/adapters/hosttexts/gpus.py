"""GPUs and the processes on them: nvidia-smi (table, -L, CSV queries) and rocm-smi; pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from pdctl.adapters.hosttexts.quantities import number
from pdctl.adapters.traces import GpuProcess, GpuReading

_NAME = re.compile(r"^\|\s+(?P<index>\d+)\s+\S.*?\|\s*(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\s")
_USE = re.compile(
    r"^\|.*?(?P<power>\d+|N/A|ERR!|Unknown\S*)\s*W?\s*/\s*(?P<limit>\d+|N/A|ERR!)\s*W?\s*\|"
    r"\s*(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB\s*\|\s*(?P<util>\d+|N/A|ERR!)"
)
_PROCESS = re.compile(
    r"^\|\s+(?P<gpu>\d+)\s+(?:\S+\s+\S+\s+)?(?P<pid>\d+)\s+[CGM+]+\s+(?P<name>\S.*?)\s+(?P<used>\d+|N/A)(?:MiB)?\s*\|$"
)
_LISTED = re.compile(r"^GPU (?P<index>\d+): .*\(UUID: ")
_LOST = re.compile(
    r"(?:device handle for (?:gpu|GPU) ?(?P<gpu>\S+?): (?P<why>.+)|GPU is lost|No devices were found)"
)
_ROCM = re.compile(r"^GPU\[(?P<index>\d+)\]\s*:\s*(?P<label>[^:]+?)\s*:\s*(?P<value>\S+)")
_ROCM_FIELDS = {
    "GPU use (%)": "util",
    "GPU memory use (%)": "memory_util",
    "GPU Memory Allocated (VRAM%)": "memory_util",
    "Average Graphics Package Power (W)": "power",
    "Current Socket Graphics Package Power (W)": "power",
}
_COLUMNS = {
    "utilization.gpu": "util",
    "utilization.memory": "memory_util",
    "power.draw": "power",
    "power.limit": "power_limit",
    "memory.used": "used_mib",
    "memory.total": "total_mib",
}
_STATES = ("gpu_recovery_action", "pstate.error", "ecc.mode.pending")


def gpus(text: str) -> list[GpuReading]:
    """Every GPU that `text` shows, in its order; the newest of several samples stands last."""
    return [*_csv_gpus(text), *_table(text), *_listed(text), *_rocm(text)]


def processes(text: str) -> list[GpuProcess]:
    """Processes on GPUs: the table's lower half, or a --query-compute-apps CSV with or without a header."""
    found = [
        GpuProcess(m["gpu"], int(m["pid"]), m["name"], number(m["used"]))
        for line in text.splitlines()
        if (m := _PROCESS.match(line.rstrip()))
    ]
    return [*found, *_csv_processes(text)]


def lost(text: str) -> list[str]:
    """Lines in which nvidia-smi says that it cannot reach a GPU."""
    return [line.strip() for line in text.splitlines() if _LOST.search(line)]


def _rows(text: str) -> Iterator[dict[str, str]]:
    """Rows of every CSV with a header in `text`; names without their units ("memory.used [MiB]")."""
    header: list[str] = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        names = [cell.split(" [")[0].strip() for cell in row]
        if any(n in _COLUMNS or n in ("pid", "index", "gpu_uuid", "uuid") for n in names):
            header = names
        elif header and len(row) == len(header):
            yield dict(zip(header, (cell.strip() for cell in row), strict=True))
        elif row:
            header = []


def _csv_gpus(text: str) -> Iterator[GpuReading]:
    for number_of_row, row in enumerate(r for r in _rows(text) if "pid" not in r):
        if not row.keys() & _COLUMNS.keys():
            continue
        index = number(row.get("index", ""))
        values = {field: number(row[name]) for name, field in _COLUMNS.items() if name in row}
        state = next((row[n] for n in _STATES if row.get(n, "None") not in ("None", "[N/A]")), "")
        if any("Unknown Error" in cell or "GPU is lost" in cell for cell in row.values()):
            state = "lost"
        yield GpuReading(int(index) if index is not None else number_of_row, **values, state=state)


def _csv_processes(text: str) -> Iterator[GpuProcess]:
    for row in _rows(text):
        if row.get("pid", "").isdigit():
            used = row.get("used_memory") or row.get("used_gpu_memory") or ""
            gpu = row.get("gpu_uuid") or row.get("gpu_bus_id") or row.get("gpu_name") or ""
            yield GpuProcess(
                gpu, int(row["pid"]), row.get("process_name") or row.get("name", ""), number(used)
            )
    if "pid" not in text:
        for line in text.splitlines():
            if bare := re.match(r"^(?P<pid>\d+), (?P<name>[^,]+), (?P<used>\d+)(?: MiB)?$", line.strip()):
                yield GpuProcess("", int(bare["pid"]), bare["name"], float(bare["used"]))


def _table(text: str) -> Iterator[GpuReading]:
    index: int | None = None
    for line in text.splitlines():
        if named := _NAME.match(line):
            index = int(named["index"])
        elif index is not None and (use := _USE.match(line)):
            broken = "ERR!" in line or "Unknown" in use["power"]
            yield GpuReading(
                index,
                util=number(use["util"]),
                power=number(use["power"]),
                power_limit=number(use["limit"]),
                used_mib=float(use["used"]),
                total_mib=float(use["total"]),
                state="ERR!" if broken else "",
            )
            index = None


def _listed(text: str) -> Iterator[GpuReading]:
    for line in text.splitlines():
        if found := _LISTED.match(line):
            yield GpuReading(int(found["index"]))


def _rocm(text: str) -> list[GpuReading]:
    by: dict[int, dict[str, float | None]] = {}
    for line in text.splitlines():
        if (found := _ROCM.match(line)) and (field := _ROCM_FIELDS.get(found["label"])):
            by.setdefault(int(found["index"]), {})[field] = number(found["value"])
    return [
        GpuReading(index, util=v.get("util"), memory_util=v.get("memory_util"), power=v.get("power"))
        for index, v in by.items()
    ]
