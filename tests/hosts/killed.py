"""`python -m tests.hosts.killed RELEASE POINT WORD…`: `pdctl WORD…` in a process that dies by SIGKILL.

RELEASE is what one more file says in the engines' code, which makes it another release; "" leaves the code as
it is. POINT is `at ID` where that step of the run begins, `within ID` a moment later, `behind ID` where it
has ended, `next FILE` behind the first step whose kind FILE does not list yet, which adds it; "" is nowhere.
Steps of one kind differ in their host or their engine alone.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pdctl.__main__ import main as pdctl
from pdctl.flows.deploy import planning
from pdctl.release.build import package_files
from pdctl.remote.journal import Journal

MOMENT = 0.05


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kind(id: str) -> str:
    return re.sub(r"^h\d/", "", re.sub(r"(prefill|decode)-\d", "engine", id))


def first_time(file: Path, kind: str) -> bool:
    known = file.read_text().splitlines() if file.exists() else []
    if kind not in known:
        # Appended: another thread dies with this one, and would leave a file that it writes anew empty.
        with file.open("a") as more:
            more.write(f"{kind}\n")
    return kind not in known


def dies(point: str) -> None:
    """From now on this process ends at `point`."""
    when, _, where = point.partition(" ")
    doing = Journal.doing

    @contextmanager
    def dying(self: Journal, id: str, *more: Any, **named: Any) -> Iterator[Any]:
        with doing(self, id, *more, **named) as step:
            if (when, where) == ("at", id):
                die()
            if (when, where) == ("within", id):
                threading.Timer(MOMENT, die).start()
            yield step
        if (when, where) == ("behind", id) or (when == "next" and first_time(Path(where), kind(id))):
            die()

    Journal.doing = dying  # type: ignore[method-assign]


def main(release: str, point: str, *words: str) -> int:
    dies(point)
    if release:
        files = {**package_files(), "engine/release.py": f'"""{release}"""\n'.encode()}
        planning.package_files = lambda: files
    return pdctl(words)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
