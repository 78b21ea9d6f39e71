"""The venv of a peer, below the cache: made on first use, with progress and within a deadline."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.procs import TELL_EVERY, BenchError, say

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pdctl"


def ready(name: str, pips: Sequence[Sequence[str]]) -> bool:
    """Whether `ensure` would have nothing to do."""
    stamp = CACHE / name / ".ready"
    return stamp.is_file() and stamp.read_text() == repr(pips)


def ensure(name: str, pips: Sequence[Sequence[str]], log_dir: Path, seconds: float) -> Path:
    """The Python of the venv `name` after `pip WORDS` for each of `pips`; one that is there is used as it is.

    Raises BenchError with a sentence where it cannot be made, or not within `seconds`.
    """
    home = CACHE / name
    python = home / "bin" / "python"
    home.mkdir(parents=True, exist_ok=True)
    log_dir.mkdir(parents=True, exist_ok=True)
    with open(home / ".lock", "w") as lock, open(log_dir / f"{name}-install.log", "wb") as log:
        until = time.monotonic() + seconds
        _lock(lock.fileno(), f"another run that installs {home}", until)
        if ready(name, pips):
            return python
        (home / ".ready").unlink(missing_ok=True)
        say(f"installing {name} into {home}, once, within {seconds:g} s")
        steps = [[sys.executable, "-m", "venv", str(home)]]
        steps += [[str(python), "-m", "pip", *words] for words in pips]
        for step in steps:
            _run(name, step, log.fileno(), until)
        (home / ".ready").write_text(repr(pips))
    return python


def _lock(fd: int, whom: str, until: float) -> None:
    told = 0.0
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise BenchError(f"{whom} did not end in time.") from None
        if time.monotonic() - told > TELL_EVERY:
            told = time.monotonic()
            say(f"waiting for {whom}")
        time.sleep(0.2)


def _run(name: str, step: list[str], log: int, until: float) -> None:
    what, began = " ".join(step[1:6]), time.monotonic()
    proc = subprocess.Popen(step, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        while True:
            try:
                if proc.wait(max(0.1, min(TELL_EVERY, until - time.monotonic()))):
                    raise BenchError(f"{name} could not be installed: {what} failed.")
                return
            except subprocess.TimeoutExpired:
                pass
            if time.monotonic() > until:
                raise BenchError(f"{name} could not be installed in time: {what} was still running.")
            say(f"  {what} … {time.monotonic() - began:.0f} s")
    finally:
        if proc.poll() is None:
            proc.kill()
            proc.wait()
