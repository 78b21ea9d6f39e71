"""`python -m tests.cases.live.record`: states of a healthy fleet, kept as bundles from real runs.

No rule may say more than info of them: tests/cases/bundles/healthy/recorded-*.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cases.case import ROOT
from tests.cases.live.fleet import START, Fleet, Said, make, unmake
from tests.demo.agents import Agents

LINES = 300  # of each log
# What its own tools say of the host is this machine's business, and of no healthy state of a fleet.
KEPT = ("answers.json", "units.json")


def keep(fleet: Fleet, name: str) -> Said:
    """The bundle of what the fleet is now, unpacked, trimmed, without this machine's names."""
    packed = fleet.folder / f"{name}.tar.gz"
    said = fleet.diagnose("--pseudonyms", "--since", "5m", "--bundle", str(packed))
    folder = ROOT / "healthy" / f"recorded-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(packed) as archive:
        archive.extractall(fleet.folder, filter="data")
    shutil.move(fleet.folder / name, folder)
    for path in [p for p in folder.rglob("*") if p.is_file()]:
        if "hosts" in path.parts and path.name not in KEPT:
            path.unlink()
            continue
        text = path.read_text()
        if path.name == "log.txt":
            text = "".join(text.splitlines(keepends=True)[-LINES:])
        path.write_text(neutral(fleet, text))
    (folder / "expect.toml").write_text("leads = []\n")
    return said


def neutral(fleet: Fleet, text: str) -> str:
    """No path of this machine."""
    here = {
        str(fleet.disk or fleet.folder): "/srv/pdctl",
        str(fleet.folder): "/srv/fleet",
        str(Path(sys.prefix)): "/srv/venv",
        str(Path(__file__).resolve().parents[3]): "/srv/app",
        str(Path.home()): "/home/pdctl",
    }
    for path, name in here.items():
        text = text.replace(path, name)
    return text


def idle(fleet: Fleet) -> Said:
    return keep(fleet, "idle")


def busy(fleet: Fleet) -> Said:
    agents = Agents(fleet.url("router"), fleet.ctx.fleet.model.name, count=3).start()
    try:
        fleet.wait("rounds are done", lambda: len(agents.done) >= 9, 120.0)
        return keep(fleet, "busy")
    finally:
        agents.stop()


def saturated(fleet: Fleet) -> Said:
    """Decode's pages are full, and requests wait for tens of seconds."""
    fleet.send(24, tokens=400)

    def waits() -> bool:
        legs = fleet.state("decode-0").get("requests", [])
        return any(r["stage"] == "waiting" and r["stage_age_s"] > 15 for r in legs)

    fleet.wait("a request waits for 15 s", waits, 120.0)
    return keep(fleet, "saturated")


def started(fleet: Fleet) -> Said:
    fleet.pdctl("restart", "--co", "--yes", timeout=2 * START)
    return keep(fleet, "started")


def _during(fleet: Fleet, name: str, moment: Callable[[], object]) -> Said:
    """A co-restart under load is under way, and has come to `moment`."""
    fleet.send(4, tokens=300)
    fleet.wait("they run", lambda: fleet.state("decode-0")["queues"]["running"]["depth"] >= 1)
    argv = [sys.executable, "-m", "pdctl", "restart", "--co", "--yes", "--drain", "15"]
    run = subprocess.Popen(argv, cwd=fleet.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        fleet.wait(f"it is {name}", moment, 60.0)
        return keep(fleet, name)
    finally:
        if run.wait(2 * START) != 0:
            raise AssertionError(f"the co-restart exited {run.returncode}")


def draining(fleet: Fleet) -> Said:
    return _during(fleet, "draining", lambda: fleet.state("router").get("admission") == "held")


def loading(fleet: Fleet) -> Said:
    """Both processes are new, and their models are not up."""
    lives = {n: fleet.unit(n).pid for n in ("prefill-0", "decode-0")}

    def young() -> bool:
        units = {n: fleet.unit(n) for n in lives}
        return all(u.pid not in (None, lives[n]) and u.state == "activating" for n, u in units.items())

    return _during(fleet, "loading", young)


STATES: dict[str, Callable[[Fleet], Said]] = {
    f.__name__: f for f in (idle, busy, saturated, draining, loading, started)
}


def main(only: Sequence[str]) -> int:
    folder = Path(tempfile.mkdtemp(prefix="pdctl-live-"))
    loud = 0
    fleet = make(folder)
    try:
        for name, state in STATES.items():
            if only and name not in only:
                continue
            fleet.clear()
            said = state(fleet)
            loud += len(said.loud)
            told = "; ".join(f"{f['severity']} {f['code']} {f['summary']}" for f in said.findings)
            print(f"{name:<10} {said.seconds:4.1f} s  {told or 'no finding'}", flush=True)
    finally:
        unmake(fleet)
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if loud else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
