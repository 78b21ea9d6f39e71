"""What an error says itself that one should do, and which setting it speaks of; pure."""

from __future__ import annotations

import re

from pdctl.adapters.traces import Traces

_NAME = r"(?:--[a-z][\w-]+|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+)"
_DO = re.compile(
    r"(?:^|[.;:,!)] *|\b(?:please|then|to) +)(?P<do>(?i:set|unset|use|try|add|pass|enable|disable|install|"
    rf"increase|reduce|decrease|lower|raise|choose|specify|remove|export)\b[^.;]*?{_NAME}[^;]*?)(?:\.(?:\s|$)|;|$)"
)
# Said with every failure of its kind, whatever the cause.
_ALWAYS = re.compile(
    r"TORCH_USE_CUDA_DSA|CUDA_LAUNCH_BLOCKING|PYTORCH_(?:CUDA_)?ALLOC_CONF|NCCL_DEBUG|TORCH_DISTRIBUTED_DEBUG"
    r"|TORCH_SHOW_CPP|PYTHONFAULTHANDLER|LOGGING_LEVEL"
)
_ASSIGNED = re.compile(r"\b(?P<name>[A-Z][A-Z0-9_]+)=(?P<value>[\w.,:/-]+)")
_LEAST = 3  # characters of a value that are no coincidence


def advice(message: str, traces: Traces) -> str:
    """The sentence that names a variable or flag to set; "" when there is none or it is set like that."""
    for found in _DO.finditer(message):
        said = found["do"].strip()
        if _ALWAYS.search(said):
            continue
        told = _ASSIGNED.search(said)
        if told is None or traces.environ.get(told["name"]) != told["value"]:
            return said
    return ""


def flag(message: str, traces: Traces) -> str:
    """The setting that the message names, or whose value it quotes, as a flag; "" when it shows neither."""
    if named := re.search(r"(?<![\w-])--[a-z][\w-]+", message):
        return named[0]
    for name, value in traces.settings.items():
        spelled = name.rpartition(".")[2] if name.startswith("kv_transfer") else name.partition(".")[0]
        quotes = len(value) > _LEAST and not value.isdigit() and value in message
        if quotes or (len(spelled) > _LEAST and re.search(rf"\b{re.escape(spelled)}\b", message)):
            return "--" + spelled.replace("_", "-")
    return ""
