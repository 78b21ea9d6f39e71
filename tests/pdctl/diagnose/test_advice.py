"""What an error says itself that one should do."""

from __future__ import annotations

import pytest

from pdctl.adapters.traces import Traces
from pdctl.diagnose.advice import advice, flag

LAYOUT = "transfer requires DS conv state layout. Set VLLM_SSM_CONV_STATE_LAYOUT=DS"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (LAYOUT, "Set VLLM_SSM_CONV_STATE_LAYOUT=DS"),
        ("not enough memory, please try --mem-fraction-static 0.8.", "try --mem-fraction-static 0.8"),
        ("CUDA error: launch failure. Compile with TORCH_USE_CUDA_DSA to enable device asserts.", ""),
        ("out of memory. Try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.", ""),
        ("tensor a must match tensor b", ""),
        ("list index out of range", ""),
    ],
)
def test_a_sentence_that_names_a_setting_is_advice(message: str, said: str) -> None:
    assert advice(message, Traces()) == said


def test_what_is_set_already_is_no_advice() -> None:
    assert advice(LAYOUT, Traces(environ={"VLLM_SSM_CONV_STATE_LAYOUT": "DS"})) == ""
    assert advice(LAYOUT, Traces(environ={"VLLM_SSM_CONV_STATE_LAYOUT": "SD"})) != ""


@pytest.mark.parametrize(
    ("message", "settings", "named"),
    [
        ("--page-size must be 64", {}, "--page-size"),
        ("Duplicate IB devices: mlx5_0,mlx5_1", {"ib_device.0": "mlx5_0,mlx5_1"}, "--ib-device"),
        ("kv_buffer_size is too small", {"kv_buffer_size": "7"}, "--kv-buffer-size"),
        ("64 is too small", {"page_size": "64"}, ""),
    ],
)
def test_a_setting_is_known_by_its_name_or_its_value(
    message: str, settings: dict[str, str], named: str
) -> None:
    assert flag(message, Traces(settings=settings)) == named
