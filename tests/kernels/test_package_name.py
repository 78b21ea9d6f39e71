"""Hugging Face has a package named `kernels` too; transformers must not take ours for it."""

from __future__ import annotations

from pathlib import Path

from transformers.utils import is_kernels_available

import kernels


def test_transformers_does_not_take_our_package_for_its_own() -> None:
    # It goes by the version of the distribution that ships `kernels`, which is this project's. When our
    # version enters the range that transformers asks for, this fails before an import error puzzles anyone.
    assert Path(kernels.__file__).is_relative_to(Path(__file__).parents[2])
    assert not is_kernels_available()
