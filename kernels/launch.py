"""One way to start a Triton kernel: it knows what is written, so a launch can be recorded instead of run.

The ahead-of-time lane compiles what is recorded, the trace of a step orders it; neither has a list of its
own that could differ from what a GPU is given. Config tables are by architecture; nothing is tuned at run
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


@dataclass(frozen=True)
class Config:
    """How one kernel is built for one architecture: warps, pipeline stages, and its block sizes by name."""

    warps: int
    stages: int = 2
    blocks: Mapping[str, int] | None = None

    def __getitem__(self, name: str) -> int:
        return (self.blocks or {})[name]


@dataclass(frozen=True)
class Launch:
    """Tensor arguments not in `writes` are read alone; those in `writes` may be read too."""

    fn: Any
    grid: tuple[int, ...]
    args: Mapping[str, Any]
    constants: Mapping[str, Any]
    writes: tuple[str, ...]
    config: Config


_recorder: ContextVar[Callable[[Launch], None] | None] = ContextVar("recorder", default=None)
_observer: ContextVar[Callable[[Launch], None] | None] = ContextVar("observer", default=None)
_target: ContextVar[int | None] = ContextVar("target", default=None)


def launch(
    fn: Any,
    grid: tuple[int, ...],
    args: Mapping[str, Any],
    writes: Sequence[str],
    config: Config,
    **constants: Any,
) -> None:
    """Start `fn` over `grid` on the current stream; an empty grid is nothing to do.

    ValueError for a tensor whose last dimension is not one run: no kernel knows of such a stride.
    """
    if not all(grid):
        return
    for name, value in args.items():
        if isinstance(value, torch.Tensor) and value.dim() and value.stride(-1) != 1 < value.shape[-1]:
            raise ValueError(f"{name} {list(value.shape)} lies apart in memory: strides {value.stride()}")
    recorder, observer = _recorder.get(), _observer.get()
    if recorder is not None or observer is not None:
        made = Launch(fn, grid, dict(args), constants, tuple(writes), config)
        if recorder is not None:
            recorder(made)
            return
        if observer is not None:
            observer(made)
    # The default of fused multiply-add flips in the next Triton; results must not with it.
    options = {"num_warps": config.warps, "num_stages": config.stages, "enable_fp_fusion": True}
    if observer is None:
        fn[grid](**args, **constants, **options)
        return
    with _disable_current_modes():  # what an interpreter does with torch is not what a kernel does
        fn[grid](**args, **constants, **options)


@contextmanager
def recording() -> Iterator[list[Launch]]:
    """Launches inside are added to the list and not run; tensors may be on any device, meta included."""
    launches: list[Launch] = []
    token = _recorder.set(launches.append)
    try:
        yield launches
    finally:
        _recorder.reset(token)


@contextmanager
def observing(told: Callable[[Launch], None]) -> Iterator[None]:
    """Launches inside are told, and run."""
    token = _observer.set(told)
    try:
        yield
    finally:
        _observer.reset(token)


@contextmanager
def target(arch: int) -> Iterator[None]:
    """Configs inside are those of `arch` (90: sm_90) whatever the device is."""
    token = _target.set(arch)
    try:
        yield
    finally:
        _target.reset(token)


def choose(configs: Mapping[int, Config], device: torch.device) -> Config:
    """The config of the device's architecture, else of the nearest older one, else of the oldest."""
    arch = _target.get()
    if arch is None and device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        arch = 10 * major + minor
    fitting = [a for a in configs if arch is not None and a <= arch]
    return configs[max(fitting) if fitting else min(configs)]
