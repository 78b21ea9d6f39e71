"""Row 24: long idle, then traffic; and hours of mixed load with random faults, without a leak of anything."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.faults.bed import Bed
from tests.faults.cell import Fault, measured
from tests.faults.kinds import Armed, Kill, Refused, Restart, Stop
from tests.faults.load import ASKS, Load, shoot, wait

P, D = "prefill-0", "decode-0"
IDLE = 60.0
SHORT = {f"{D}.prealloc": 1.5, f"{D}.transfer": 1.5, f"{P}.inflight": 2.0}
# What leaves every process alive is drawn more often: a leak needs lives that are long.
GENTLE = [
    partial(Stop, D, "group", 1.5),
    partial(Stop, P, "rank 1", 1.5),
    partial(Stop, D, "group", 5.0),
    partial(Armed, P, "stall-transfer", 2, deadlines=SHORT),
    partial(Armed, P, "lose-done", deadlines=SHORT),
    partial(Armed, P, "lose-want", deadlines=SHORT),
    partial(Armed, P, "slow-transfer", 3, 0.5),
    partial(Armed, P, "fail-post"),
    partial(Refused, D, "refuse-pages", 0, deadlines=SHORT, fires=f"{D}.prealloc"),
]
HARSH = [
    partial(Kill, P, "rank 1"),
    partial(Kill, D, "parent"),
    partial(Restart, (D,)),
    partial(Restart, (P,)),
]


@pytest.mark.slow
def test_the_first_request_after_a_long_idle_is_served(bed: Bed, record: Path | None) -> None:
    bed.heal()
    with measured(24, f"idle for {IDLE:g} s", "all", record) as result:
        wait(bed.clean, 20.0, "the last answer of before to be published")
        before, began = work(bed), time.monotonic()
        wait(lambda: time.monotonic() - began > IDLE, IDLE + 10.0, "the idle time", every=1.0)
        if work(bed) == before:
            result.evidence = f"no step in {time.monotonic() - began:.0f} s"
        struck = time.monotonic()
        shot = shoot(bed.url, ASKS[0], bed.right[0], stream=False)
        assert shot.fate == "right", shot
        result.requests, result.recover_s = 1, time.monotonic() - struck
        wait(bed.clean, 20.0, "every page to be free")
        result.held = bed.held()


def work(bed: Bed) -> list[int]:
    """Tokens computed so far by each engine."""
    progress = [s["progress"] for s in bed.states().values()]
    return [int(p["tokens_generated"]) + int(p["tokens_prefilled"]) for p in progress]


@dataclass
class Lives:
    """Memory, open files and threads of each process, from a first look in its warm state to the last."""

    first: dict[int, tuple[float, int, int, int]] = field(default_factory=dict)
    last: dict[int, tuple[float, int, int, int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def look(self, bed: Bed) -> None:
        for process in bed.stack.processes.values():
            root = psutil.Process(process.pid)
            for number, found in enumerate([root, *root.children()]):
                with found.oneshot():
                    seen = (time.monotonic(), found.memory_info().rss, found.num_fds(), found.num_threads())
                self.names[found.pid] = f"{process.name}[{number}]"
                self.first.setdefault(found.pid, seen)
                self.last[found.pid] = seen

    def leaks(self) -> list[str]:
        """Growth beyond what caches of the allocator and idle connections explain."""
        found = []
        for pid, (began, rss, fds, threads) in self.first.items():
            at, rss_now, fds_now, threads_now = self.last[pid]
            hours = (at - began) / 3600
            if rss_now - rss > 64e6 + 32e6 * hours:
                found.append(f"{self.names[pid]}: {(rss_now - rss) / 1e6:.0f} MB more in {hours:.2f} h")
            if fds_now - fds > 16:
                found.append(f"{self.names[pid]}: {fds_now - fds} open files more in {hours:.2f} h")
            if threads_now - threads > 4:
                found.append(f"{self.names[pid]}: {threads_now - threads} threads more in {hours:.2f} h")
        return found

    def longest(self) -> str:
        pid = max(self.first, key=lambda p: self.last[p][0] - self.first[p][0])
        (began, rss, fds, threads), (at, *now) = self.first[pid], self.last[pid]
        return (
            f"{self.names[pid]} over {(at - began) / 60:.0f} min: memory {(now[0] - rss) / 1e6:+.0f} MB, "
            f"files {now[1] - fds:+d}, threads {now[2] - threads:+d}"
        )


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_hours_of_mixed_load_with_random_faults(bed: Bed, record: Path | None) -> None:
    minutes = float(os.environ.get("SOAK_MINUTES", "60"))
    seed = int(os.environ.get("SOAK_SEED", str(random.randrange(1 << 32))))
    print(f"SOAK_MINUTES={minutes:g} SOAK_SEED={seed}")
    rng, lives = random.Random(seed), Lives()
    bed.heal()
    with measured(24, f"{minutes:g} minutes of load and random faults", "all", record) as result:
        began, done = time.monotonic(), 0
        while time.monotonic() - began < minutes * 60:
            kinds = HARSH if done % 8 == 7 else GENTLE
            fault: Fault = rng.choice(kinds)()
            with Load(bed.url, bed.right) as load:
                load.wait_rights(3, 0.0, 90.0, "right answers before the fault")
                fault.inject(bed)
                wait(lambda f=fault: f.evidence(bed), 20.0, f"evidence of {fault}")  # type: ignore[misc]
                seen = time.monotonic()
                result.restarts += fault.cure(bed)
                load.wait_rights(5, seen, 120.0, f"right answers after {fault}")
            fates = load.fates()
            result.requests += len(load.shots)
            result.hung, result.wrong = result.hung + fates["hung"], result.wrong + fates["wrong"]
            result.failed["any code"] = result.failed.get("any code", 0) + fates["failed"]
            assert not fates["hung"] and not fates["wrong"] and not fates["broken"], f"{fault}: {fates}"
            wait(bed.clean, 40.0, f"every page to be free after {fault}", every=0.2)
            done += 1
            lives.look(bed)
        result.held, result.recover_s = bed.held(), time.monotonic() - began
        result.evidence = f"{done} faults, each with its evidence, seed {seed}; {lives.longest()}"
        assert not lives.leaks(), "; ".join(lives.leaks())
