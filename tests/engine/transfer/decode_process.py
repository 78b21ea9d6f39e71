"""A decode with real agents as a process: takes rooms 1..64, two pages each, from the address in argv."""

from __future__ import annotations

import sys

from tests.engine.transfer.harness import Engine


def main() -> None:
    env = {"PD_HEARTBEAT_TIMEOUT": "2"}
    decode = Engine("decode", "decode-0", real=True, pages=200, tp=2, env=env, peers=[sys.argv[1]])
    for room in range(1, 65):
        decode.transfer.request(room, f"d{room}", sys.argv[1])
        decode.transfer.grant(room, [2 * room, 2 * room + 1], 4)
    sys.stdin.read()  # until the test ends


if __name__ == "__main__":
    main()
