"""A model as it lies on a host: whether it can be loaded, how it can be shared out, what its KV takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Model:
    """`wrong` is a clause that says what keeps it from being loaded, "" for nothing that can be seen.
    `parts` is how many ranks can share it, which are its `parts_are`; it and `kv_values`, which is how many
    numbers a token's KV has, are None where not known."""

    there: bool
    wrong: str = ""
    parts: int | None = None
    kv_values: int | None = None
    parts_are: str = "key/value heads"

    def serves(self, tp: int) -> bool:
        """Whether so many ranks can share it, as far as is known: each needs a part of its own."""
        return self.parts is None or tp <= self.parts


def request(path: str) -> dict[str, dict[str, str]]:
    return {"model": {"path": path}}


def parse(row: Mapping[str, Any]) -> Model:
    config = {key: n for key, n in row["config"].items() if isinstance(n, int) and n > 0}
    heads = config.get("num_attention_heads")
    there, wrong = row["kind"] != "absent", row["wrong"]
    # Where all heads share one cached entry a token, ranks share out what reads it.
    if "o_groups" in config:
        return Model(there, wrong, config["o_groups"], None, "groups of output heads")
    if "kv_lora_rank" in config:
        return Model(there, wrong, heads, None, "attention heads")
    kv_heads = config.get("num_key_value_heads", heads)
    layers, hidden = config.get("num_hidden_layers"), config.get("hidden_size")
    size = config.get("head_dim") or (hidden // heads if hidden and heads else None)
    values = 2 * layers * kv_heads * size if layers and kv_heads and size else None
    return Model(there, wrong, kv_heads, values)
