"""What every operation of torch reads, writes and makes, seen where torch dispatches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, ValuesView
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Of these the first operand is touched in the rows that the index names, and nowhere else.
_BY_ROW = {
    "aten::index_select": "index",
    "aten::index_copy_": "index",
    "aten::index_add_": "index",
    "aten::embedding": "indices",
    "aten::index.Tensor": "indices",
}
_LIFT = "aten::lift_fresh"  # what the host has made becomes a tensor
_COMPOSITE = "CompositeImplicitAutograd"


class Touch(NamedTuple):
    """A tensor, or these indices of its first dimension."""

    tensor: torch.Tensor
    rows: torch.Tensor | None = None


class Seen(NamedTuple):
    """`host`: why the host has to wait for its result, or the device for a value of the host; else empty."""

    name: str
    reads: list[Touch]
    writes: list[Touch]
    host: str


class Witness(TorchDispatchMode):
    """Each operation is told `before` it runs, with what it touches, and `after` with the memory it made."""

    def __init__(
        self, before: Callable[[Seen], None], after: Callable[[Seen, list[torch.Tensor]], None]
    ) -> None:
        super().__init__()
        self._before, self._after = before, after

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE):
            if func.name() == "aten::resolve_neg":  # of tolist, which asks for nothing else
                self._before(Seen("tolist", [Touch(args[0])], [], "its values are read on the host"))
            with self:
                return func.decompose(*args, **kwargs)
        seen = _seen(func, args, kwargs)
        self._before(seen)
        found = func(*args, **kwargs)
        given = set() if func.name() == _LIFT else {_storage(t) for t in _tensors((args, kwargs.values()))}
        self._after(seen, [tensor for tensor in _tensors(found) if _storage(tensor) not in given])
        return found


def _seen(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Seen:
    reads: list[Touch] = []
    writes: list[Touch] = []
    given = {}
    views = False
    for at, argument in enumerate(func._schema.arguments):
        value = args[at] if at < len(args) else kwargs.get(argument.name)
        given[argument.name] = value
        alias = argument.alias_info
        views |= alias is not None and not alias.is_write
        touched = writes if alias is not None and alias.is_write else reads
        touched += [Touch(tensor) for tensor in _tensors(value)]
    name = func.name()
    index = given.get(_BY_ROW.get(name, ""))
    rows = index if isinstance(index, torch.Tensor) else next(iter(_tensors(index)), None)
    whole = rows is None or rows.dtype == torch.bool or given.get("dim", 0) != 0
    if not whole and (isinstance(index, torch.Tensor) or (isinstance(index, list) and index[0] is rows)):
        touched = writes if writes else reads
        touched[0] = Touch(touched[0].tensor, rows)
    if views:
        reads = []
    return Seen(name.removeprefix("aten::"), reads, writes, _host(func, args, rows))


def _host(func: Any, args: tuple[Any, ...], rows: torch.Tensor | None) -> str:
    if torch.Tag.data_dependent_output in func.tags:
        return "its value is read on the host"
    by_mask = rows is not None and rows.dtype == torch.bool
    if torch.Tag.dynamic_output_shape in func.tags and (by_mask or func.name() != "aten::index.Tensor"):
        return "the shape of what it returns is a value"
    if func.name() == _LIFT and args[0].dim():
        return "it is made of values of the host"
    return ""


def _storage(tensor: torch.Tensor) -> int | None:
    """None where a library keeps a weight in a layout of its own."""
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else None


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | ValuesView):
        for one in value:
            yield from _tensors(one)
