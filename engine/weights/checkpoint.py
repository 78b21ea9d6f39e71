"""The tensors of a model folder, read one at a time, whole or by rows and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.core.errors import ModelError
from engine.weights.jsonfile import read_json
from engine.weights.quantised import few_bits, from_fp4, from_fp8, packed, scale_name
from engine.weights.sound import sound

_AGAIN = "Fetch or convert the model again."


class Checkpoint:
    """model.safetensors, or the shards of model.safetensors.index.json; files are mapped, not read.

    A file that is missing, truncated, lacks a tensor or holds what can be none is a ModelError naming it.
    """

    def __init__(self, folder: Path, block: tuple[int, int] = (128, 128)) -> None:
        """`block`: rows and columns that share a scale where weights are FP8."""
        self.folder, self._block = folder, block
        self._open: dict[str, Any] = {}
        index = folder / "model.safetensors.index.json"
        if index.exists():
            where = read_json(index).get("weight_map")
            if not isinstance(where, dict) or not where:
                raise ModelError("model_file_damaged", f"{index} has no weight_map.", _AGAIN)
            self._where = {str(name): str(file) for name, file in where.items()}
            for file in sorted(set(self._where.values())):
                self._file(file)
        else:
            names = self._file("model.safetensors").keys()
            self._where = dict.fromkeys(names, "model.safetensors")

    @property
    def names(self) -> set[str]:
        return set(self._where)

    def first(self, *names: str) -> str:
        """Which of these names a tensor has here; the first of them when there is none."""
        return next((name for name in names if name in self._where), names[0])

    def whole(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        return self._read(name, shape, slice(None))

    def rows(self, name: str, shape: tuple[int, ...], start: int, stop: int) -> torch.Tensor:
        """[stop - start, ...] of a tensor whose whole shape is `shape`."""
        return self._read(name, shape, slice(start, stop))

    def columns(self, name: str, shape: tuple[int, ...], start: int, stop: int) -> torch.Tensor:
        return self._read(name, shape, slice(None), slice(start, stop))

    def integers(self, name: str, shape: tuple[int, ...], below: int) -> torch.Tensor:
        """A table int64 of numbers from 0 on and under `below`."""
        table = self._slice(name, shape)[:]
        if table.is_floating_point() or not 0 <= int(table.min()) <= int(table.max()) < below:
            where = self.folder / self._where[name]
            raise ModelError(
                "weights_damaged", f"{where}: {name} is no table of numbers below {below}.", _AGAIN
            )
        return torch.Tensor.long(table)

    def _read(
        self, name: str, shape: tuple[int, ...], rows: slice, columns: slice | None = None
    ) -> torch.Tensor:
        view, scales = self._view(name), scale_name(name, self._where)
        if scales is not None and few_bits(view.get_dtype()) and len(shape) == 2:
            found = self._dequantised(name, scales, shape, rows, columns or slice(None))
        else:
            self._check(name, view, shape)
            found = view[rows] if columns is None else view[rows, columns]
        return sound(found, name, self.folder / self._where[name])

    def _dequantised(
        self, name: str, scales: str, shape: tuple[int, ...], rows: slice, columns: slice
    ) -> torch.Tensor:
        """float32 of a weight of few bits, by its scales."""
        view = self._view(name)
        try:
            if not packed(view.get_dtype()):
                self._check(name, view, shape)
                start = (rows.start or 0, columns.start or 0)
                return from_fp8(view[rows, columns], self._any(scales), self._block, start, shape)
            self._check(name, view, (shape[0], shape[1] // 2))
            second = self._any(f"{scales}_2") if f"{scales}_2" in self._where else None
            return from_fp4(view[rows], self._view(scales)[rows], second)[:, columns]
        except ValueError as error:
            text = f"{self.folder / self._where[name]}: {scales} does not fit {name} ({error})."
            raise ModelError("tensor_shape", text, _AGAIN) from None

    def _any(self, name: str) -> torch.Tensor:
        """A whole tensor of any shape, also of none."""
        found: torch.Tensor = self._file(self._where[name]).get_tensor(name)
        return found

    def _slice(self, name: str, shape: tuple[int, ...]) -> Any:
        """The tensor's place in its file, not read yet; its shape is `shape`."""
        view = self._view(name)
        self._check(name, view, shape)
        return view

    def _check(self, name: str, view: Any, shape: tuple[int, ...]) -> None:
        if tuple(view.get_shape()) != shape:
            raise ModelError(
                "tensor_shape",
                f"{self.folder / self._where[name]}: {name} has shape {list(view.get_shape())}, "
                f"but config.json asks for {list(shape)}.",
                _AGAIN,
            )

    def _view(self, name: str) -> Any:
        file = self._where.get(name)
        if file is None:
            raise ModelError("tensor_missing", f"{self.folder} has no tensor {name}.", _AGAIN)
        try:
            view = self._file(file).get_slice(name)
        except SafetensorError as error:
            raise ModelError(
                "tensor_missing", f"{self.folder / file} has no readable tensor {name} ({error}).", _AGAIN
            ) from None
        return view

    def _file(self, name: str) -> Any:
        if name not in self._open:
            path = self.folder / name
            try:
                self._open[name] = safe_open(path, framework="pt", device="cpu")
            except FileNotFoundError:
                raise ModelError("weights_missing", f"{path} does not exist.", _AGAIN) from None
            except (SafetensorError, OSError) as error:
                raise ModelError(
                    "weights_damaged", f"{path} is damaged or truncated ({error}).", _AGAIN
                ) from None
        return self._open[name]
