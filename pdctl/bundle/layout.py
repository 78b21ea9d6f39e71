"""Which document of a bundle is whose and what it is, from its path alone; docs/bundle.md is this as prose.

PARTY/FILE, PARTY.FILE and hosts/HOST/FILE; a FILE at the top without a party is the only engine's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from pdctl.bundle.text import PACKED

ALONE = "engine"  # the party of documents that name none
HERE = "host"  # the host of documents that name none


class What(StrEnum):
    """LOG and the rest are a party's; KERNEL and TOOL are a host's."""

    LOG = "log"
    METRICS = "metrics"
    ENVIRON = "environ"
    COMMAND = "command"
    JSON = "json"
    STACKS = "stacks"
    FILE = "file"
    KERNEL = "kernel"
    TOOL = "tool"


@dataclass(frozen=True)
class Place:
    """`name` is the endpoint, file or tool without numbers; `former` means of the last good start."""

    what: What
    party: str
    name: str
    former: bool = False


_TOOLS = (
    "nvidia-smi|rocm-smi|df|ss|netstat|ibv_devinfo|ibstat|show_gids|chronyc|timedatectl|ntpq|free|ps|top|ulimit|"
    "ucx_info|ip-addr|ip|lscpu|numactl|lspci|uptime|meminfo|rdma|ethtool|iptables|nft|ldd|coredumpctl|systemctl|"
    "nccl-ras|answers"
)
_FORMS: tuple[tuple[What, re.Pattern[str]], ...] = (
    (What.KERNEL, re.compile(r"^(dmesg|kernel|kern|journal-k|xid)\b")),
    (What.TOOL, re.compile(rf"^({_TOOLS})\b")),
    (What.ENVIRON, re.compile(r"^(env|environ|environment)\b|\.env$")),
    (What.COMMAND, re.compile(r"^(args|cmdline|command|launch|exec)\b|\.sh$")),
    (What.STACKS, re.compile(r"^(stacks?|py-?spy|threads|gdb|cuda-gdb|backtrace)\b")),
    (What.FILE, re.compile(r"^(limits|maps|status|numa_maps|smaps|stat|mountinfo)$")),
    (What.METRICS, re.compile(r"\.prom$|^metrics\b")),
    (What.JSON, re.compile(r"\.json$")),
    (What.LOG, re.compile(r"\.(log|out|err|txt)(?:\.\d{1,3}|-\d{6,14})?$|^(log|journal|stdout|stderr)\b")),
)
# What people put beside the documents, and what is of an engine without its name.
_PROSE = re.compile(
    r"^(?:notes?|readme|report|issue|description|summary|timeline|todo|questions?|comments?|thread|steps|"
    r"collect_env|pip[-_](?:freeze|list)|curl)\b",
    re.I,
)
_NAMELESS = re.compile(
    r"^(?:kubectl|docker|podman|events?|nccl|rank[-_]?\d+|tp[-_]?\d+|systemd|journalctl)\b"
)
# As prefill-0-metrics.txt: the name of whose it is, then what it is.
_JOINED = re.compile(
    r"^(?P<owner>.+?)[-_](?P<file>(?:log|stdout|stderr|metrics|env|environ|args|cmdline|launch|stacks?|py-?spy|"
    rf"server_info|v1_loads|state|dmesg|kernel|{_TOOLS})\.(?:log|txt|out|err|prom|json|sh|csv))$"
)
_OF_HOST = (What.KERNEL, What.TOOL)
_OURS = ("bundle.toml", "manifest.json", "fleet.json")


# Left alone without a word: what people write, and what no engine writes.
_BESIDE = re.compile(r"\.(?:md|rst|ya?ml|toml|png|jpe?g|gif|svg|pdf|html?|py|ipynb|xlsx?|docx?)$|^\.", re.I)
# As logrotate names older files: a higher number is older, a later date is younger.
_ROTATED = re.compile(r"(?P<stem>.*\b(?:log|out|err|txt))(?:\.(?P<number>\d{1,3})|-(?P<date>\d{6,14}))$")


def age_order(path: str) -> tuple[str, int, int]:
    """Sorts documents by name, and the files of one rotated log from the oldest to the present one."""
    bare = PACKED.sub("", path)
    rotated = _ROTATED.match(bare)
    if rotated is None:
        return bare, 1, 0
    return rotated["stem"], 0, -int(rotated["number"]) if rotated["number"] else int(rotated["date"])


def beside(path: str) -> bool:
    """Whether it is what people put beside documents: notes, pictures, configuration."""
    file = PurePosixPath(PACKED.sub("", path)).parts[-1]
    return path in _OURS or bool(_PROSE.search(file) or _BESIDE.search(file))


def nameless(path: str) -> bool:
    """Whether it may be a document, and its name does not say which."""
    return not beside(path) and place(path) is None


def _form(file: str) -> What | None:
    return next((what for what, form in _FORMS if form.search(file)), None)


def _stem(file: str) -> str:
    """state.2.json -> state; env.last-good.txt -> env."""
    stem = re.sub(r"\.(log|out|err|txt|json|prom|sh|env|csv)$", "", file)
    return re.sub(r"([._-]?\d+|\.last-good)+$", "", stem) or stem


def place(path: str) -> Place | None:
    """Where a document belongs; None for what no bundle knows, such as notes and pictures."""
    path = PACKED.sub("", path)
    parts = PurePosixPath(path).parts
    if path in _OURS or (parts[0] != "hosts" and _PROSE.search(parts[-1])):
        return None
    if parts[0] == "hosts" and len(parts) > 2:
        owner, file = parts[1], parts[-1]
        what = _form(file)
        return Place(what if what in _OF_HOST else What.TOOL, owner, _stem(file)) if what else None
    owner, file = (parts[0], parts[-1]) if len(parts) > 1 else _split(path)
    what = _form(file)
    return None if what is None else Place(what, owner, _stem(file), ".last-good" in file)


def _split(file: str) -> tuple[str, str]:
    """prefill-0.log -> (prefill-0, log.log); metrics.prom has no party."""
    owner, dot, rest = file.partition(".")
    if not dot or _form(file) in _OF_HOST or _NAMELESS.search(file):
        return "", file
    if (joined := _JOINED.search(file)) is not None:
        return joined["owner"], joined["file"]
    if rest == "txt" and _form(owner) is not None:
        return "", file  # metrics.txt, py-spy.txt: what it is, not whose
    if rest in ("log", "out", "err", "txt", "json", "prom", "sh", "env"):
        known = {"prom": ("metrics",), "json": ("state", "server_info", "loads", "v1_loads", "requests")}
        if owner in (
            *known.get(rest, ()),
            "log",
            "journal",
            "stdout",
            "stderr",
            "env",
            "args",
            "cmdline",
            "launch",
        ):
            return "", file
        return owner, {"prom": "metrics.prom", "env": "env", "sh": "launch.sh"}.get(rest, f"log.{rest}")
    if _form(rest) is not None and _form(owner) is None:
        return owner, rest
    return ("", file) if _form(owner) is not None else (owner, rest)


def role_of(name: str) -> str:
    """prefill, decode, router or both, from what people call their servers."""
    low = name.lower()
    if re.search(r"prefill|^p\d*$|^p-?\d", low):
        return "prefill"
    if re.search(r"decode|^d\d*$|^d-?\d", low):
        return "decode"
    if re.search(r"router|proxy|gateway|frontend|epp|sidecar|lb", low):
        return "router"
    return "both"
