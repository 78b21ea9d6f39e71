"""Fixtures for tests on real processes and the real small model."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.examples import examples

# How long an example takes says something of the machine and nothing of the code.
settings.register_profile(
    "any machine", deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# Under nohup, or in the background of a script, both are ignored, and by every process that a test starts:
# with a handler here they have their meaning there again.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(scope="session")
def smollm() -> Path:
    """The converted SmolLM2-135M folder; `make test` pulls it, so its absence is a failure in CI."""
    default = Path.home() / ".cache" / "pdctl" / "models" / "smollm2-135m"
    path = Path(os.environ.get("PDCTL_TEST_MODEL", default))
    if not (path / "config.json").exists():
        if os.environ.get("CI"):
            pytest.fail(f"no model at {path}: run `pdctl model pull smollm2-135m`")
        pytest.skip(f"no model at {path}: run `pdctl model pull smollm2-135m`")
    return path


# Of the same files one worker after the other: they share engines, and not more of them run than must.
TOGETHER = {"tests/faults/": "tests/faults", "tests/e2e/": "tests/e2e"}
# What takes minutes begins first, so that no worker is alone with it at the end.
FIRST = (
    "tests/faults/",
    "tests/e2e/",
    "tests/kernels/test_interpreted.py",
    "tests/pdctl/cli/",
    "tests/hosts/",
    "tests/pdctl/flows/",
    "tests/pdctl/",
    "tests/engine/runner/",
    "tests/engine/models/",
)


class Scheduling(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((name for folder, name in TOGETHER.items() if file.startswith(folder)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """For `--dist loadfile --no-loadscope-reorder`."""
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda i: next((n for n, f in enumerate(FIRST) if i.nodeid.startswith(f)), len(FIRST)))
