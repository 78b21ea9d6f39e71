"""A model as it lies on a host: whether it can be loaded, and into how many ranks it can be shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Model:
    """`wrong` is a clause that says what keeps it from being loaded, "" for nothing that can be seen;
    `kv_heads` None where that is not known."""

    there: bool
    wrong: str = ""
    kv_heads: int | None = None

    def serves(self, tp: int) -> bool:
        """Whether so many ranks can share it, as far as is known: each needs a key/value head."""
        return self.kv_heads is None or tp <= self.kv_heads


def request(path: str) -> dict[str, dict[str, str]]:
    return {"model": {"path": path}}


def parse(row: Mapping[str, Any]) -> Model:
    config = row["config"]
    heads = config.get("num_key_value_heads") or config.get("num_attention_heads")
    return Model(row["kind"] != "absent", row["wrong"], heads if isinstance(heads, int) else None)
