"""Host tool: stacks of processes, by py-spy where it is installed; the processes go on meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from typing import Any

from pdctl.facts.probes.proc import denied, family, process_table

STACKS_SECONDS = 4.0
# Ranks and the parent; more of them would not be read.
_STACKS_MOST = 16


def probe_stacks(pids: list[int]) -> dict[str, Any]:
    """Pid -> {"text": the stacks of it and of its children} or {"missing": why}."""
    table = process_table()
    found: dict[str, Any] = {}
    threads = [
        threading.Thread(target=_stacks_of, args=(str(pid), family(pid, table), found), daemon=True)
        for pid in pids
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(STACKS_SECONDS + 0.5)
    late = {"missing": f"no stacks in {STACKS_SECONDS:g} s"}
    return {str(pid): found.get(str(pid), late) for pid in pids}


def _pyspy(pid: int) -> str | None:
    """In PATH, or beside the interpreter that the process runs."""
    try:
        beside = os.path.join(os.path.dirname(os.readlink(f"/proc/{pid}/exe")), "py-spy")
    except OSError:
        beside = ""
    return shutil.which("py-spy") or (beside if beside and os.access(beside, os.X_OK) else None)


def _stacks_of(name: str, pids: list[int], found: dict[str, Any]) -> None:
    texts, why = [], "no process runs"
    for pid in pids[:_STACKS_MOST]:
        tool = _pyspy(pid)
        if tool is None:
            why = "there is no py-spy"
            break
        try:
            done = subprocess.run(
                (tool, "dump", "--nonblocking", "--pid", str(pid)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=STACKS_SECONDS / 2,
            )
        except subprocess.TimeoutExpired:
            why = "py-spy did not answer"
            continue
        if done.returncode == 0:
            texts.append(done.stdout.decode("utf-8", "replace"))
            continue
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = f"py-spy: {said[0] if said else done.returncode}"
        if "ermission" in why:
            denied.append(f"stacks of {pid}")
    found[name] = {"text": "\n".join(texts)} if texts else {"missing": why}
