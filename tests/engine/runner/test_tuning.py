"""The knobs of a GPU: their range is the kernels', and the engine refuses what is outside of it."""

from __future__ import annotations

import pytest
import torch

from engine.core.errors import ConfigError
from engine.core.settings import BY_NAME, Settings
from engine.runner import Tuning
from engine.runner import tuning as module
from kernels.ops.splits import LEAST_TARGET, MOST_TARGET
from kernels.streams.serial import SerialStreams
from pdctl.fleet.catalogue import known

TARGET, OVERLAP, GRAPHS = BY_NAME["target_ctas"], BY_NAME["overlap"], BY_NAME["graphs"]


def test_the_range_that_everybody_knows_is_the_kernels_own() -> None:
    ends = (LEAST_TARGET, MOST_TARGET)
    assert (TARGET.low, TARGET.high) == ends == (known()[TARGET.env].low, known()[TARGET.env].high)
    assert TARGET.default == MOST_TARGET, "the default is no limit"


@pytest.mark.parametrize(
    ("env", "value", "says"),
    [
        (TARGET.env, "0", "outside 1..65536 CTAs"),
        (TARGET.env, "65537", "outside 1..65536 CTAs"),
        (TARGET.env, "512.5", "not a whole number of CTAs"),
        (TARGET.env, "many", "not a whole number of CTAs"),
        (OVERLAP.env, "2", "not 0 or 1"),
        (OVERLAP.env, "on", "not 0 or 1"),
        (GRAPHS.env, "2", "not 0 or 1"),
    ],
)
def test_what_is_out_of_range_is_a_sentence_here_and_in_profile_check(
    env: str, value: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        Settings.from_env({env: value})
    assert env in str(refused.value)
    assert known()[env].problem(value)


def test_all_are_read_at_start() -> None:
    for setting in (TARGET, OVERLAP, GRAPHS):
        with pytest.raises(ConfigError, match="restart"):
            Settings.from_env({}).set(setting.name, setting.low, 0.0)


@pytest.mark.parametrize("value", ["0", "1"])
def test_overlap_is_what_a_gpus_streams_are_made_with(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, ...]] = []
    monkeypatch.setattr(module, "CudaStreams", lambda *args: made.append(args))
    tuning = Tuning.of(Settings.from_env({OVERLAP.env: value}), max_running=4)
    tuning.streams(torch.device("cuda"))
    assert made == [(("side",), torch.device("cuda"), value == "1")]
    assert isinstance(tuning.streams(torch.device("cpu")), SerialStreams)
