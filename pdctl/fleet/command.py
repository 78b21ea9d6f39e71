"""Command lines of engines that are not the bundled one: what they serve, read from their own flags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Module or program (with its first argument) -> kind.
_MODULES = {
    "sglang.launch_server": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
    "sglang_router.launch_router": "sglang-router",
}
_PROGRAMS = {("sglang", "serve"): "sglang", ("vllm", "serve"): "vllm"}
_ROUTERS = ("sglang-router", "smg")
# Where a kind listens when it is not told.
_PORTS = {"sglang": 30000, "vllm": 8000, "sglang-router": 30000}
SGLANG_BOOTSTRAP = 8998
_MODEL = ("--model-path", "--model")
_TP = ("--tensor-parallel-size", "--tp-size", "--tp", "-tp")
_KV_ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}


@dataclass(frozen=True)
class Served:
    """What a command starts. None and "" where it does not say; `complete` is False with --config FILE.

    `role` is None for a kind that plays a role its flags do not tell (vLLM's kv_both).
    """

    kind: str
    role: str | None
    host: str
    port: int
    bootstrap_port: int | None
    tp: int
    model: str
    name: str
    complete: bool = True


@dataclass(frozen=True)
class Flags:
    """The words behind the entry point: `--name value`, `--name=value` and positional ones."""

    words: tuple[str, ...]

    def values(self, names: Sequence[str]) -> Iterator[str]:
        """Every value given for one of `names`, in order; underscores are dashes, as vLLM has it."""
        for at, word in enumerate(self.words):
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            if name not in names:
                continue
            if equals:
                yield value
            elif at + 1 < len(self.words):
                yield self.words[at + 1]

    def last(self, *names: str) -> str | None:
        """The value that counts: argparse takes the last one."""
        return next(reversed(list(self.values(names))), None)

    def number(self, default: int, *names: str) -> int:
        text = self.last(*names)
        return int(text) if text is not None and text.isascii() and text.isdigit() else default


def entry(command: Sequence[str]) -> tuple[str, int] | None:
    """The kind that `command` starts and where its own flags begin, wrappers (numactl, env, …) in front."""
    for at, word in enumerate(command):
        following = command[at + 1] if at + 1 < len(command) else ""
        if word == "-m" and following in _MODULES:
            return _MODULES[following], at + 2
        program = word.rpartition("/")[2]
        if (program, following) in _PROGRAMS:
            return _PROGRAMS[program, following], at + 2
        if program in _ROUTERS:
            return "sglang-router", at + 1
    return None


def served(command: Sequence[str]) -> Served | None:
    """What `command` starts, None when that is not an engine or router that pdctl knows."""
    found = entry(command)
    if found is None:
        return None
    kind, at = found
    flags = Flags(tuple(command[at:]))
    role = _role(kind, flags)
    model = flags.last(*_MODEL) or _positional_model(kind, flags)
    bootstrap = None
    if kind == "sglang" and role == "prefill":
        bootstrap = flags.number(SGLANG_BOOTSTRAP, "--disaggregation-bootstrap-port")
    return Served(
        kind=kind,
        role=role,
        host=flags.last("--host") or "",
        port=flags.number(_PORTS[kind], "--port"),
        bootstrap_port=bootstrap,
        tp=flags.number(1, *_TP),
        model=model,
        name=flags.last("--served-model-name") or model,
        complete=flags.last("--config") is None,
    )


def arguments(command: Sequence[str]) -> dict[str, str]:
    """Flag with its dashes -> value of a command that `entry` knows, "true" for a flag alone; the last one
    counts. An object becomes --flag.key, as vLLM spells it too."""
    found = entry(command)
    words = list(command[found[1] :]) if found else []
    given: dict[str, str] = {}
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if not flag.startswith("--"):
            continue
        following = words[at + 1] if at + 1 < len(words) else "--"
        value = value if equals else "true" if following.startswith("--") else following
        given |= _flat(flag.replace("_", "-") if "." not in flag else flag, value)
    return given


def _flat(flag: str, value: object) -> dict[str, str]:
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return {flag: str(value)}
    if isinstance(value, dict):
        inner = [_flat(f"{flag}.{key}", each) for key, each in value.items()]
        return {name: text for each in inner for name, text in each.items()}
    return {flag: str(value).lower() if isinstance(value, bool) else str(value)}


def _role(kind: str, flags: Flags) -> str | None:
    if kind == "sglang-router":
        return "router"
    if kind == "sglang":
        mode = flags.last("--disaggregation-mode") or "null"
        return mode if mode in ("prefill", "decode") else "both"
    text = flags.last("--kv-transfer-config")
    if text is None:
        return "both"
    try:
        role = json.loads(text).get("kv_role")
    except (ValueError, AttributeError):
        return None
    return _KV_ROLES.get(role)


def _positional_model(kind: str, flags: Flags) -> str:
    first = flags.words[0] if kind == "vllm" and flags.words else ""
    return "" if first.startswith("-") else first


def peers(command: Sequence[str]) -> dict[str, list[str]]:
    """Role -> URLs that a router's command names with --prefill and --decode."""
    found = entry(command)
    flags = Flags(tuple(command[found[1] :] if found else ()))
    urls = {role: list(flags.values((f"--{role}",))) for role in ("prefill", "decode")}
    return {role: [u for u in given if re.match("https?://", u)] for role, given in urls.items()}
