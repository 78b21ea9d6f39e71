"""What no kernel may be given."""

from __future__ import annotations

import pytest
import torch

from kernels.launch import Config, launch, recording


@pytest.mark.parametrize("apart", [torch.arange(8)[::2], torch.zeros(4, 6).T, torch.zeros(1).expand(3)])
def test_an_operand_whose_last_dimension_lies_apart_is_refused(apart: torch.Tensor) -> None:
    """A kernel would read what lies between, of a vector whose reference gives the right answer."""
    with recording() as launches, pytest.raises(ValueError, match="lies apart in memory"):
        launch(None, (1,), {"lengths": apart}, (), Config(1))
    assert not launches


def test_rows_may_lie_apart_and_one_element_has_no_stride() -> None:
    fine = (
        torch.zeros(4, 6)[:, 1:3],
        torch.zeros(6).expand(3, 6),
        torch.zeros(4, 6).T[:, :1],
        torch.zeros(()),
    )
    with recording() as launches:
        for tensor in fine:
            launch(None, (1,), {"x": tensor, "n": 3}, (), Config(1))
    assert len(launches) == len(fine)
