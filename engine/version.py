"""`python -m engine version`: what this installation is made of, as JSON, and whether all of it loads.

{"engine", "python", "modules": {NAME: version}, "broken": {NAME: why}}; exit 0 when nothing is broken. A
deploy asks this of a new release before anything is switched to it.
"""

from __future__ import annotations

import importlib
import json
import platform
from importlib import metadata

from engine import __version__
from engine.core.errors import Exit

# Import name -> distribution: everything an engine or a router imports from outside.
MODULES = {
    "gguf": "gguf",
    "httpx": "httpx",
    "jinja2": "jinja2",
    "kernels": "",
    "msgspec": "msgspec",
    "nixl._api": "nixl",
    "numpy": "numpy",
    "prometheus_client": "prometheus-client",
    "psutil": "psutil",
    "safetensors": "safetensors",
    "starlette": "starlette",
    "tokenizers": "tokenizers",
    "torch": "torch",
    "uvicorn": "uvicorn",
}


def run_version(argv: list[str]) -> int:
    modules: dict[str, str] = {}
    broken: dict[str, str] = {}
    for name, dist in MODULES.items():
        try:
            importlib.import_module(name)
            modules[name] = metadata.version(dist) if dist else __version__
        # A library that does not fit the machine fails in its own way: an ImportError, an OSError, worse.
        except Exception as error:  # noqa: BLE001 - reported
            broken[name] = f"{type(error).__name__}: {error}"
    said = {"engine": __version__, "python": platform.python_version(), "modules": modules, "broken": broken}
    print(json.dumps(said))
    return int(Exit.CONFIG if broken else Exit.OK)
