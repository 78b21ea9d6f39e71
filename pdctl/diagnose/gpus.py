"""What the GPUs of a host do: work, spin, nothing; and which one is not like the others; pure."""

from __future__ import annotations

from statistics import median

from pdctl.adapters.traces import GpuReading
from pdctl.diagnose.facts import Facts

BUSY = 90.0  # percent that count as busy
LOW_POWER = 0.3  # of the limit; work on tensors takes more
LOW_WATTS = 120.0  # where no limit was said
NO_MEMORY = 5.0  # percent of memory throughput


def of_party(facts: Facts, name: str) -> tuple[GpuReading, ...]:
    """GPUs of the host that a party runs on; which of them are its own is not known."""
    party = facts.party(name)
    host = facts.host(party.member.host) if party is not None else None
    return newest(host.traces.gpus) if host is not None else ()


def newest(samples: tuple[GpuReading, ...]) -> tuple[GpuReading, ...]:
    """The last sample of each GPU."""
    return tuple({gpu.index: gpu for gpu in samples}.values())


def low(gpu: GpuReading) -> bool:
    """Power or memory throughput that no forward pass has."""
    if gpu.power is not None:
        limit = gpu.power_limit
        return gpu.power < (LOW_POWER * limit if limit else LOW_WATTS)
    return gpu.memory_util is not None and gpu.memory_util < NO_MEMORY


def spins(gpu: GpuReading) -> bool:
    """Busy without work: a kernel that polls."""
    return gpu.util is not None and gpu.util >= BUSY and low(gpu)


def works(gpu: GpuReading) -> bool:
    return gpu.util is not None and gpu.util >= BUSY and not low(gpu)


def idle(gpu: GpuReading) -> bool:
    return gpu.util is not None and gpu.util < 5


def odd(gpus: tuple[GpuReading, ...]) -> GpuReading | None:
    """Of several that spin, the one whose load or power is far from the rest; None when there is no one."""
    used = [g for g in gpus if g.util is not None]
    if len(used) < 3:
        return None
    strange = []
    powers = [g.power for g in used if g.power is not None]
    middle = median(powers) if powers else 0.0
    for gpu in used:
        other_load = not spins(gpu)
        other_power = gpu.power is not None and not 0.6 * middle <= gpu.power <= 1.6 * middle
        if other_load or other_power:
            strange.append(gpu)
    return strange[0] if len(strange) == 1 else None


def told(gpu: GpuReading) -> str:
    """GPU 3: 98 % busy, 15 W of 140 W, memory 0 %."""
    parts = [f"{gpu.util:g} % busy"] if gpu.util is not None else []
    if gpu.power is not None:
        parts.append(f"{gpu.power:g} W" + (f" of {gpu.power_limit:g} W" if gpu.power_limit else ""))
    if gpu.memory_util is not None:
        parts.append(f"memory {gpu.memory_util:g} %")
    return f"GPU {gpu.index}: {', '.join(parts)}"
