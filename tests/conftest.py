"""Fixtures for tests on real processes and the real small model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something of the machine and nothing of the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


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
