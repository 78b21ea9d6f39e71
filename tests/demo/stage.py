"""The demo's stage: runs pdctl as its user would, shows what it prints, and checks what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# Seconds for what takes some of them on a machine that does nothing else. No step depends on its speed.
PATIENCE = 600.0


class Lie(AssertionError):
    """A step did not do what it says."""


@dataclass
class Stage:
    """Commands run in `folder`, where the fleet file is."""

    folder: Path
    color: bool = field(default_factory=sys.stdout.isatty)
    step: int = 0

    def title(self, text: str) -> None:
        self.step += 1
        bold, plain = ("\033[1;36m", "\033[0m") if self.color else ("", "")
        print(f"\n{bold}{self.step}. {text}{plain}", flush=True)

    def say(self, text: str) -> None:
        print(f"   {text}", flush=True)

    def pdctl(self, *args: str, expect: int | None = 0, quiet: bool = False) -> str:
        """Run a verb, show its output indented; what it printed. Its exit code must be `expect`, if given."""
        dim, plain = ("\033[2m", "\033[0m") if self.color else ("", "")
        print(f"   {dim}$ pdctl {' '.join(args)}{plain}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "pdctl", *args],
            cwd=self.folder,
            env=os.environ | {"COLUMNS": "120", "NO_COLOR": "1"},
            text=True,
            capture_output=True,
            timeout=2 * PATIENCE,
        )
        shown = done.stdout + done.stderr
        expect = done.returncode if expect is None else expect
        if not quiet or done.returncode != expect:
            print("\n".join(f"   │ {line}" for line in shown.rstrip().splitlines()), flush=True)
        if done.returncode != expect:
            raise Lie(f"pdctl {' '.join(args)} exited {done.returncode}, not {expect}")
        return shown

    def check(self, true: object, what: str) -> None:
        if not true:
            raise Lie(what)
        self.say(f"✓ {what}")

    def wait(self, what: str, check: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not check():
            if time.monotonic() > deadline:
                raise Lie(f"waited {PATIENCE:g} s for: {what}")
            time.sleep(0.1)
        self.say(f"✓ {what}")
