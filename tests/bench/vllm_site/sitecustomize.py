"""Loaded by the Python of a vLLM process (PYTHONPATH): gives NIXL's progress thread a pause between polls.

NIXL's Python wrapper fixes `pthrDelay` at 0, so the progress thread of an idle agent takes a whole core.
On a machine with as many cores as engines that measures the spinning, not vLLM. Nothing of vLLM or NIXL
is changed on disk: when `nixl_cu*._api` has been imported, its agent constructor is wrapped.
"""

import importlib.abc
import importlib.machinery
import os
import sys

DELAY_US = int(os.environ.get("BENCH_NIXL_PTHR_DELAY_US", "500"))


class _Bindings:
    """`nixl._bindings` with one constructor replaced."""

    def __init__(self, real):
        self._real = real

    def __getattr__(self, name):
        return getattr(self._real, name)

    def nixlAgent(self, name, config):
        config.pthrDelay = DELAY_US
        return self._real.nixlAgent(name, config)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if not (fullname.startswith("nixl_") and fullname.endswith("._api")):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                module.nixlBind = _Bindings(module.nixlBind)

            spec.loader.exec_module = exec_module
        return spec


if DELAY_US > 0:
    sys.meta_path.insert(0, _Finder())
