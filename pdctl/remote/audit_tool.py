"""What was changed on this host, and by whom. Runs there through `python3 - VERB JSON`; Python >= 3.9.

append   {root, lines: [{…}]}   {"written": N}
read     {root, last: N}        {"lines": [{…}]}, oldest first; "bad" counts lines that are no JSON

ROOT/audit.jsonl is only ever appended to: one write a line, `at` is this host's clock, mode 0600. One that
has grown to LIMIT becomes audit.jsonl.1, that .2 and so on, and the oldest of KEPT goes. Whoever writes or
reads holds the folder's lock meanwhile, so that no line is written to a file that goes, or read twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections import deque
from typing import Any

Entry = dict[str, Any]
LIMIT, KEPT = 4 << 20, 4  # bytes of one file; files


def paths(root: str) -> list[str]:
    """The newest first."""
    path = os.path.join(root, "audit.jsonl")
    return [path, *(f"{path}.{n}" for n in range(1, KEPT))]


def locked(root: str) -> int:
    """The folder, until it is closed."""
    fd = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def rotate(root: str) -> None:
    files = paths(root)
    try:
        if os.stat(files[0]).st_size < LIMIT:
            return
    except FileNotFoundError:
        return
    for n in range(KEPT - 1, 0, -1):
        if os.path.exists(files[n - 1]):
            os.replace(files[n - 1], files[n])


def append(ask: Entry) -> Entry:
    os.makedirs(ask["root"], exist_ok=True)
    folder = locked(ask["root"])
    try:
        rotate(ask["root"])
        return write(ask)
    finally:
        os.close(folder)


def write(ask: Entry) -> Entry:
    path = paths(ask["root"])[0]
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        # A line that was cut off by a full disk must not swallow the next one.
        lead = "\n" if size and os.pread(fd, 1, size - 1) != b"\n" else ""
        for line in ask["lines"]:
            now = time.time()
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
            data = (lead + json.dumps({"at": stamp, **line}) + "\n").encode()
            if os.write(fd, data) != len(data):
                raise OSError(28, os.strerror(28), path)
            lead = ""
        os.fsync(fd)
    finally:
        os.close(fd)
    return {"written": len(ask["lines"])}


def read(ask: Entry) -> Entry:
    """Of as many files as it takes."""
    try:
        folder = locked(ask["root"])
    except FileNotFoundError:
        return {"lines": [], "bad": 0}
    try:
        found: list[Entry] = []
        bad = 0
        for path in paths(ask["root"]):
            if len(found) >= ask["last"] or not os.path.exists(path):
                break
            lines, torn = read_file(path, ask["last"] - len(found))
            found, bad = lines + found, bad + torn
        return {"lines": found, "bad": bad}
    finally:
        os.close(folder)


def read_file(path: str, most: int) -> tuple[list[Entry], int]:
    """Its last lines, oldest first, and how many of it are none."""
    last: deque[Entry] = deque(maxlen=most)
    bad = 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = json.loads(text)
            except ValueError:
                bad += bool(text.strip())
                continue
            if isinstance(line, dict):
                last.append(line)
    return list(last), bad


VERBS = {"append": append, "read": read}

if __name__ == "__main__":
    asked = json.loads(sys.argv[2])
    try:
        print(json.dumps(VERBS[sys.argv[1]](asked)))
    except PermissionError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(77)
    except OSError as error:
        # What fails on an open file (a full disk) names none.
        print(f"{error.filename or asked['root']}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
