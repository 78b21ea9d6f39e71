"""`python -m tests.pdctl.flows.killed FOLDER RELEASE`: deploy, and die by SIGKILL behind the first step that
no earlier run died behind. Exit 0 when all of them have been passed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pdctl.flows.deploy.planning
import pdctl.plan.run
from pdctl.flows.context import Context
from tests.pdctl.flows.conftest import Bench

ONE = threading.Lock()


def die_once(folder: Path, id: str) -> None:
    """Of all that runs here, unless this has been done at `id` before."""
    with ONE:
        seen = folder / "seen"
        known = seen.read_text().splitlines() if seen.exists() else []
        if id not in known:
            seen.write_text("\n".join([*known, id]))
            os.kill(os.getpid(), signal.SIGKILL)


class Dying(Bench):
    def restart(self, ctx: Context, cell: str) -> None:
        """Also with one engine of the cell restarted and the other one not."""
        engine = ctx.fleet.cells[cell].engines[0]
        ctx.units(engine.host).restart(engine.name)
        die_once(self.folder, f"within co-restart/{cell}")
        super().restart(ctx, cell)


def main(folder: Path, release: str) -> None:
    bench = Dying(folder, files={"engine/__init__.py": release.encode()})
    pdctl.flows.deploy.planning.package_files = lambda: bench.files
    apply = pdctl.plan.run.apply_step

    def applied(pending, journal, say) -> None:
        apply(pending, journal, say)
        die_once(folder, pending.step.id)

    pdctl.plan.run.apply_step = applied
    bench.deploy()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
