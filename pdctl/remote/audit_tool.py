"""What was changed on this host, and by whom. Runs there through `python3 - VERB JSON`; Python >= 3.9.

append   {root, lines: [{…}]}   {"written": N}
read     {root, last: N}        {"lines": [{…}]}, oldest first; "bad" counts lines that are no JSON

ROOT/audit.jsonl is only ever appended to: one write a line, `at` is this host's clock, mode 0600.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from typing import Any

Entry = dict[str, Any]


def append(ask: Entry) -> Entry:
    os.makedirs(ask["root"], exist_ok=True)
    path = os.path.join(ask["root"], "audit.jsonl")
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
    last: deque[Entry] = deque(maxlen=ask["last"])
    bad = 0
    try:
        with open(os.path.join(ask["root"], "audit.jsonl"), encoding="utf-8", errors="replace") as file:
            for text in file:
                try:
                    line = json.loads(text)
                except ValueError:
                    bad += bool(text.strip())
                    continue
                if isinstance(line, dict):
                    last.append(line)
    except FileNotFoundError:
        pass
    return {"lines": list(last), "bad": bad}


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
