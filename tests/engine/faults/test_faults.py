"""Fault points: off by default, counted, named."""

from __future__ import annotations

import pytest

from engine.core.errors import ConfigError
from engine.faults import Faults


def test_off_unless_enabled() -> None:
    faults = Faults()
    with pytest.raises(ConfigError, match="PD_DRILL_TOKEN_FILE"):
        faults.arm("lose-done")
    assert not faults.take("lose-done")
    assert faults.document() == {"enabled": False, "armed": [], "hits": {}}


def test_a_count_is_used_up() -> None:
    faults = Faults(enabled=True)
    faults.arm("lose-want", count=2)
    assert faults.armed("lose-want")
    assert [faults.take("lose-want") for _ in range(3)] == [True, True, False]
    assert faults.document() == {"enabled": True, "armed": [], "hits": {"lose-want": 2}}


def test_count_zero_stays_until_disarmed() -> None:
    faults = Faults(enabled=True)
    faults.set("slow-transfer", True, value=0.5)
    assert [faults.take_value("slow-transfer") for _ in range(3)] == [0.5] * 3
    (row,) = faults.document()["armed"]  # type: ignore[misc]
    assert row == {"name": "slow-transfer", "count": 0, "value": 0.5, "hits": 3}
    faults.set("slow-transfer", False)
    assert faults.take_value("slow-transfer") is None


@pytest.mark.parametrize(
    ("name", "count", "value", "says"),
    [
        ("lose-wants", 0, 0.0, "Did you mean lose-want"),
        ("lose-want", -1, 0.0, "count"),
        ("slow-transfer", 0, float("nan"), "value"),
        ("slow-transfer", 0, 1e9, "value"),
    ],
)
def test_bad_arms_are_named(name: str, count: int, value: float, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Faults(enabled=True).arm(name, count, value)
