"""The supervisor's pause on the control host. Runs there through `python3 - VERB JSON`; Python >= 3.9.

look    {root}                                 {pause, attended}
pause   {root, by, reason, seconds}            {pause, attended}   `seconds` null: until somebody resumes
resume  {root, attended}                       {pause, attended, was}   `attended` is an id of this resume

`pause` is null, or {by, reason, since, seconds, left} with `left` seconds to go. An expired pause is none.
ROOT/pause holds it. It is counted by this host's clock that goes on while the clock is set.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from typing import Any

Entry = dict[str, Any]


def clock() -> Entry:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):
        boot, up = "", 0.0
    return {"now": time.time(), "boot": boot, "up": up}


def left(pause: Entry, at: Entry) -> Any:
    """Seconds to go, None for one without an end. Over a reboot only the wall clock can tell."""
    if pause["seconds"] is None:
        return None
    same = bool(at["boot"]) and pause["boot"] == at["boot"]
    gone = at["up"] - pause["up"] if same else at["now"] - pause["since"]
    return float(pause["seconds"] - gone)


def settle(verb: str, ask: Entry, kept: Entry, at: Entry) -> tuple[Entry, Entry]:
    """What is kept after the verb, and its answer; pure."""
    pause = kept.get("pause")
    rest = left(pause, at) if pause else None
    if pause and rest is not None and rest <= 0:
        pause = None
    answer: Entry = {}
    if verb == "pause":
        pause = {
            "by": ask["by"],
            "reason": ask["reason"],
            "seconds": ask["seconds"],
            "since": at["now"],
            "boot": at["boot"],
            "up": at["up"],
        }
        rest = left(pause, at)
    elif verb == "resume":
        answer["was"] = pause is not None
        kept, pause = dict(kept, attended=ask["attended"]), None
    shown = None
    if pause:
        shown = {key: pause[key] for key in ("by", "reason", "since", "seconds")}
        shown["left"] = rest
    answer.update(pause=shown, attended=kept.get("attended", ""))
    return dict(kept, pause=pause), answer


def read(path: str) -> Entry:
    """OSError where it cannot be read. A torn file is a pause: nobody can tell that there was none."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        pause = found["pause"]
        whole = pause is None or all(k in pause for k in ("by", "reason", "seconds", "since", "boot", "up"))
    except FileNotFoundError:
        return {"pause": None}
    except (ValueError, KeyError, TypeError):
        whole = False
    if whole:
        return found
    said = {"by": "a torn file", "reason": path + " cannot be read", "seconds": None}
    return {"pause": dict(said, since=os.path.getmtime(path), boot="", up=0.0)}


def act(verb: str, ask: Entry) -> Entry:
    root = ask["root"]
    path = os.path.join(root, "pause")
    if verb == "look":
        return settle(verb, ask, read(path), clock())[1]
    os.makedirs(root, exist_ok=True)
    guard = os.open(path + ".guard", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        after, answer = settle(verb, ask, read(path), clock())
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(after, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
        return answer
    finally:
        os.close(guard)


if __name__ == "__main__":
    asked = json.loads(sys.argv[2])
    try:
        print(json.dumps(act(sys.argv[1], asked)))
    except PermissionError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(77)
    except OSError as error:
        print(f"{error.filename or asked['root']}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
