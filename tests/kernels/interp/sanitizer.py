"""What a GPU does not say: a lane outside its arguments, a read of what nobody wrote, a race of programs.

The interpreter runs the programs of a launch one after the other on this process's memory, so a wrong store
would corrupt the heap instead of failing. Here every access is looked at first.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton.runtime.interpreter as interpreter

_BUILDER = interpreter.InterpreterBuilder
_GRID = interpreter.GridExecutor
MANY = -1  # readers of a byte
LARGEST = 1 << 28  # bytes of a storage that races are looked for in


class KernelFault(RuntimeError):
    """An access that a GPU would have let pass or died of. Names kernel, program, argument and element."""


@dataclass(eq=False)
class Storage:
    """By byte, who wrote and who read it in this launch: program + 1, 0 for nobody, MANY for several."""

    begin: int
    writer: np.ndarray | None
    reader: np.ndarray | None


@dataclass(frozen=True)
class Span:
    low: int
    high: int
    name: str
    storage: Storage


class Sanitizer:
    """Watches every launch while it is active (`watching`)."""

    def __init__(self, shuffle: int | None) -> None:
        self._shuffle = shuffle
        self._unwritten: dict[int, np.ndarray] = {}
        self._kept: list[torch.Tensor] = []  # so that nothing else comes to lie where they are
        self._spans: list[Span] = []
        self._kernel, self._program = "", 0
        self._grid: tuple[int, int, int] = (1, 1, 1)
        self._order: list[int] = []

    def fresh(self, *tensors: torch.Tensor) -> None:
        """Nothing of these has been written: a load before a store is a fault."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._unwritten[storage.data_ptr()] = np.ones(storage.nbytes(), bool)
            self._kept.append(tensor)

    def begin(self, kernel: str, args: dict[str, Any]) -> None:
        self._kernel, self._spans = kernel, []
        storages: dict[int, Storage] = {}
        for name, tensor in args.items():
            if not isinstance(tensor, torch.Tensor) or not tensor.numel():
                continue
            whole = tensor.untyped_storage()
            begin, size = whole.data_ptr(), whole.nbytes()
            if begin not in storages:
                marks = [np.zeros(size, np.int32) if size <= LARGEST else None for _ in range(2)]
                storages[begin] = Storage(begin, *marks)
            extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
            low = tensor.data_ptr()
            self._spans.append(Span(low, low + extent * tensor.element_size(), name, storages[begin]))

    def grid(self, size: tuple[int, int, int]) -> None:
        self._grid = size
        self._order = list(range(size[0] * size[1] * size[2]))
        if self._shuffle is not None:
            random.Random(self._shuffle).shuffle(self._order)

    def program(self, x: int, y: int, z: int) -> tuple[int, int, int]:
        """The program that runs at this turn: programs come in any order on a GPU."""
        _, ny, nz = self._grid
        at = self._order[(x * ny + y) * nz + z]
        self._program = at + 1
        return at // (ny * nz), at // nz % ny, at % nz

    def access(self, kind: str, pointers: Any, mask: Any, size: int) -> None:
        shape = np.broadcast_shapes(np.shape(pointers), np.shape(mask))
        address = np.broadcast_to(pointers, shape)[np.broadcast_to(mask, shape).astype(bool)]
        address = address.ravel().astype(np.int64)
        left = np.ones(address.shape, bool)
        for span in self._spans:
            here = left & (address >= span.low) & (address + size <= span.high)
            if here.any():
                left &= ~here
                self._touch(kind, span, address[here], size)
        if left.any():
            near = min(
                self._spans, key=lambda s: min(abs(address[left][0] - s.low), abs(address[left][0] - s.high))
            )
            self._fault(
                f"{kind} {(int(address[left][0]) - near.low) // size} elements from the start of", near
            )

    def _touch(self, kind: str, span: Span, address: np.ndarray, size: int) -> None:
        storage = span.storage
        at = (address - storage.begin)[:, None] + np.arange(size)
        unwritten = self._unwritten.get(storage.begin)
        if unwritten is not None:
            if kind == "load" and unwritten[at].any():
                lane = int(unwritten[at].any(1).argmax())
                element = (int(address[lane]) - span.low) // size
                self._fault(f"load of element {element}, which nobody wrote, of", span)
            unwritten[at] &= kind == "load"
        if storage.writer is None or storage.reader is None:
            return
        writer, reader, me = storage.writer[at], storage.reader[at], self._program
        if kind == "load":
            if ((writer != 0) & (writer != me)).any():
                self._fault("race: load of what another program of the launch writes, of", span)
            storage.reader[at] = np.where((reader == 0) | (reader == me), me, MANY)
            return
        mine = me if kind == "store" else -me - 1  # atomics of several programs may meet
        if (((writer > 0) & (writer != me)) | ((writer < 0) & (kind == "store"))).any():
            self._fault("race: store to what another program of the launch writes, of", span)
        if kind == "store" and ((reader != 0) & (reader != me)).any():
            self._fault("race: store to what another program of the launch reads, of", span)
        storage.writer[at] = mine

    def _fault(self, what: str, span: Span) -> None:
        raise KernelFault(f"{self._kernel}, program {self._program - 1}: {what} {span.name}")


@contextmanager
def watching(shuffle: int | None = None) -> Iterator[Sanitizer]:
    """Every launch inside is watched; with `shuffle`, programs come in an order drawn from that seed."""
    sanitizer = Sanitizer(shuffle)
    names = ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
    old = {name: getattr(_BUILDER, name) for name in (*names, "set_grid_idx", "set_grid_dim")}
    call = _GRID.__call__
    for name in names:
        setattr(_BUILDER, name, _watched(sanitizer, name, old[name]))

    def grid_dim(self: Any, x: int, y: int, z: int) -> None:
        sanitizer.grid((x, y, z))
        old["set_grid_dim"](self, x, y, z)

    def grid_idx(self: Any, x: int, y: int, z: int) -> None:
        old["set_grid_idx"](self, *sanitizer.program(x, y, z))

    def run(self: Any, *args: Any, **named: Any) -> None:
        known = inspect.signature(self.fn).parameters
        sanitizer.begin(self.fn.__name__, {**dict(zip(known, args, strict=False)), **named})
        call(self, *args, **named)

    _BUILDER.set_grid_dim, _BUILDER.set_grid_idx, _GRID.__call__ = grid_dim, grid_idx, run
    try:
        yield sanitizer
    finally:
        _GRID.__call__ = call
        for name, function in old.items():
            setattr(_BUILDER, name, function)


def _watched(sanitizer: Sanitizer, name: str, function: Any) -> Any:
    positions: dict[str, tuple[str, Sequence[int]]] = {
        "create_masked_load": ("load", (0, 1)),
        "create_masked_store": ("store", (0, 2)),
        "create_atomic_rmw": ("atomic", (1, 3)),
        "create_atomic_cas": ("atomic", (0, 0)),
    }
    kind, (pointer, mask) = positions[name]

    def access(self: Any, *args: Any) -> Any:
        pointers = args[pointer]
        size = interpreter._get_np_dtype(pointers.get_element_ty()).itemsize
        real = np.ones_like(pointers.data, bool) if mask == pointer else args[mask].data
        sanitizer.access(kind, pointers.data, real, size)
        return function(self, *args)

    return access
