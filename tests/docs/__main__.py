"""`python -m tests.docs --write` writes the generated pages, `--check` exits 1 when one is not current."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.docs.pages import stale

FOLDER = Path(__file__).parents[2] / "docs"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.docs", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the pages that are not current")
    what.add_argument("--check", action="store_true", help="exit 1 when a page is not current")
    args = parser.parse_args()
    pages = stale(FOLDER)
    for name, text in pages.items():
        if args.write:
            (FOLDER / name).write_text(text)
        print(f"docs/{name}: {'written' if args.write else 'not current; run `make docs`'}")
    return 1 if pages and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
