"""The fleet's lock on its control host. Runs there through `python3 - VERB JSON`; Python >= 3.9.

look     {root}                  {holder, torn}
take     {root, holder, dead}    {holder, torn, taken, over}   `over` is the dead holder it was taken from;
                                 `dead` is the id and the last heartbeat of a holder judged to be dead: one
                                 that has sent another heartbeat since, or given way to somebody, is not
beat     {root, id}              {holder, torn, mine}          `problem` when it could not be written
release  {root, id}              {holder, torn, released}

ROOT/lock says who holds the fleet; `file` in a question names another lock beside it. A guard file makes
each verb one act. All times are this host's, so the clocks of operators do not matter. An answer's holder has
`age`, seconds since its last heartbeat, and `held`, since it took the lock; a torn file is nobody's lock. Who
is dead is for the operators' side to say, because only a holder's own machine can see whether its process
lives.
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
    """`up` does not jump when the clock is set; it counts within one boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):
        boot, up = "", 0.0
    return {"now": time.time(), "boot": boot, "up": up}


def age(holder: Entry, at: Entry) -> float:
    """After a reboot of this host, the time since then: no heartbeat came in it, and nobody can set it."""
    if not at["boot"] or not holder.get("boot"):
        return float(at["now"] - holder["heartbeat"])
    return float(at["up"] - (holder["up"] if holder["boot"] == at["boot"] else 0.0))


def settle(verb: str, ask: Entry, holder: Entry | None, at: Entry) -> tuple[Entry | None, Entry]:
    """Who holds the lock after the verb, and its answer; pure."""
    answer: Entry = {}
    beat = {"heartbeat": at["now"], "boot": at["boot"], "up": at["up"]}
    if verb == "take":
        wanted = ask["holder"]
        answer = {"taken": False, "over": None}
        if holder is not None and holder["id"] == wanted["id"]:
            answer["taken"] = True  # asked twice because the first answer was lost
        elif holder is None or [holder["id"], holder["heartbeat"]] == ask.get("dead"):
            answer = {"taken": True, "over": told(holder, at)}
            holder = dict(wanted, since=at["now"], **beat)
    elif verb == "beat":
        answer = {"mine": holder is not None and holder["id"] == ask["id"]}
        holder = dict(holder, **beat) if holder is not None and answer["mine"] else holder
    elif verb == "release":
        answer = {"released": holder is not None and holder["id"] == ask["id"]}
        holder = None if answer["released"] else holder
    return holder, dict(answer, holder=told(holder, at))


def told(holder: Entry | None, at: Entry) -> Entry | None:
    return None if holder is None else dict(holder, age=age(holder, at), held=at["now"] - holder["since"])


def read(path: str) -> tuple[Entry | None, bool]:
    """The holder, and whether the file is torn and so nobody's."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        whole = all(isinstance(found[key], str) for key in ("id", "owner", "host", "kind"))
        whole = whole and all(isinstance(found[key], float) for key in ("since", "heartbeat", "up"))
        return (found, False) if whole else (None, True)
    except FileNotFoundError:
        return None, False
    except (ValueError, KeyError, TypeError):
        return None, True


def write(path: str, holder: Entry | None) -> None:
    if holder is None:
        os.unlink(path)
        return
    with open(path + ".new", "w", encoding="utf-8", opener=_private) as file:
        json.dump(holder, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def act(verb: str, ask: Entry) -> Entry:
    root = ask["root"]
    path = os.path.join(root, ask.get("file", "lock"))
    if verb == "take":
        os.makedirs(root, exist_ok=True)
    elif not os.path.isdir(root):
        return settle(verb, ask, None, clock())[1]
    guard = os.open(path + ".guard", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        before, torn = read(path)
        after, answer = settle(verb, ask, before, clock())
        answer["torn"] = torn
        if after != before:
            try:
                write(path, after)
            except OSError as error:
                if verb != "beat":
                    raise
                answer["problem"] = f"{path}: {error.strerror}"
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
        # What fails on an open file (a full disk) names none.
        print(f"{error.filename or asked['root']}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
