"""`python -m tests.kernels.aot`: every kernel, built for every architecture and held to the table.

`--sample` builds a few, and only checks that the others are what was measured; `--write` measures anew.
"""

from __future__ import annotations

import argparse
import sys

from tests.kernels.aot.table import builds, committed, stale, write, wrong

SAMPLE = "paged_decode_attention.attend 9/3 x 64 sm_"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.aot", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--sample", action="store_true", help="build a few")
    what.add_argument("--write", action="store_true", help="write the table of what is measured now")
    args = parser.parse_args()
    if args.write:
        problems = write()
    else:
        table = committed()
        problems = list(stale(table))
        some = [b for b in builds() if not args.sample or b.name.startswith(SAMPLE)]
        problems += [problem for build in some for problem in wrong(build, table)]
        print(f"{len(some)} of {len(table)} builds held to the table")
    for problem in problems:
        print(problem)
    if problems and not args.write:
        print("When that is as it should be: `python -m tests.kernels.aot --write`, and `make docs`")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
