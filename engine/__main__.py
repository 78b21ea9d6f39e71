"""`python -m engine serve|router|convert|version|probe|rank`: the engine's only entry."""

from __future__ import annotations

import importlib
import logging
import os
import sys

from engine.core.errors import EngineError, Exit

# Verb → module and function; imported when invoked, so that the router never loads torch.
VERBS = {
    "serve": ("engine.serve", "run_serve"),
    "router": ("engine.router", "run_router"),
    "convert": ("engine.weights.convert", "run_convert"),
    "version": ("engine.version", "run_version"),
    "probe": ("engine.probe", "run_probe"),
    "rank": ("engine.group.rank", "run_rank"),
}
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def main(argv: list[str]) -> int:
    """Run a verb; an EngineError becomes one sentence on stderr and its exit code."""
    if not argv or argv[0] not in VERBS:
        print(f"usage: python -m engine {{{','.join(v for v in VERBS if v != 'rank')}}} …", file=sys.stderr)
        return 2
    module, function = VERBS[argv[0]]
    level = os.environ.get("PD_LOG_LEVEL", "INFO").upper()
    if level not in LEVELS:
        print(f"engine: PD_LOG_LEVEL: {level} is none of {', '.join(LEVELS)}.", file=sys.stderr)
        return int(Exit.CONFIG)
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("httpx", "httpcore", "uvicorn.error", "nixl"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        return int(getattr(importlib.import_module(module), function)(argv[1:]))
    except EngineError as error:
        print(f"engine: {error}", file=sys.stderr)
        return int(error.exit)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
