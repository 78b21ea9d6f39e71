"""A GGUF file opened for conversion: its metadata by key and its tensors by name, dequantised on demand."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from engine.core.errors import ModelError
from engine.weights.sound import sound

_AGAIN = "Fetch the file again."


class GgufFile:
    """`architecture` is general.architecture; keys that begin with it may be read through `arch`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_magic(path)
        try:
            self._reader = gguf.GGUFReader(path)
            self._tensors = {t.name: t for t in self._reader.tensors}
        except (ValueError, IndexError, KeyError, OverflowError, OSError, struct.error):
            # The reader's own words are of arrays and their axes.
            text = f"{path} is damaged or truncated: what its header names is not all there."
            raise ModelError("gguf_damaged", text, _AGAIN) from None
        self.architecture = str(self.value("general.architecture"))

    def get(self, key: str) -> Any:
        """The value of a metadata key, None when the file has no such key."""
        field = self._reader.fields.get(key)
        if field is None:
            return None
        try:
            return field.contents()
        except (ValueError, IndexError, UnicodeDecodeError) as error:
            raise ModelError("gguf_damaged", f"{self.path}: {key} is unreadable ({error}).", _AGAIN) from None

    def value(self, key: str) -> Any:
        """As `get`; ModelError when the key is absent."""
        found = self.get(key)
        if found is None:
            raise ModelError("gguf_key_missing", f"{self.path} has no metadata key {key}.", _AGAIN)
        return found

    def arch(self, key: str) -> Any:
        return self.value(f"{self.architecture}.{key}")

    def arch_get(self, key: str) -> Any:
        return self.get(f"{self.architecture}.{key}")

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape in row-major order (GGUF writes it reversed)."""
        return tuple(int(n) for n in reversed(self._find(name).shape))

    def dtype(self, name: str) -> torch.dtype:
        """What `tensor` returns: F16 and BF16 as they are, everything else float32."""
        kind = self._find(name).tensor_type
        half = {gguf.GGMLQuantizationType.F16: torch.float16, gguf.GGMLQuantizationType.BF16: torch.bfloat16}
        return half.get(kind, torch.float32)

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor, dequantised, as a private row-major copy."""
        found = self._find(name)
        try:
            values = gguf.dequantize(found.data, found.tensor_type)
        except (ValueError, NotImplementedError) as error:
            raise ModelError(
                "gguf_unsupported",
                f"{self.path}: {name} is {found.tensor_type.name}, which cannot be dequantised ({error}).",
                "Use a file quantised as Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, a K-quant, F16, BF16 or F32.",
            ) from None
        array = np.array(values, dtype=np.float32).reshape(self.shape(name))
        return sound(torch.from_numpy(array).to(self.dtype(name)), name, self.path)

    def _find(self, name: str) -> Any:
        found = self._tensors.get(name)
        if found is None:
            raise ModelError("gguf_tensor_missing", f"{self.path} has no tensor {name}.", _AGAIN)
        return found


def _check_magic(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        raise ModelError("model_missing", f"{path} does not exist.", "Check --model or --gguf.") from None
    except OSError as error:
        raise ModelError("model_file_unreadable", f"{path} cannot be read: {error.strerror}.") from None
    if magic != b"GGUF":
        raise ModelError(
            "not_a_gguf",
            f"{path} is not a GGUF file (it does not begin with the bytes GGUF).",
            "Give a .gguf file or a model folder.",
        )
