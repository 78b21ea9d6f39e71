"""Binding a process to one NUMA node where systemd does not do it. Linux, standard library only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

NODES = Path("/sys/devices/system/node")


class NoNode(Exception):
    """The node is not there, or has no CPUs; the message is a sentence's second half."""


@dataclass(frozen=True)
class Binding:
    """What starts the process: its argv, what it does before it becomes the program, what to say about it."""

    argv: tuple[str, ...]
    before: Callable[[], None] | None = None
    note: str = ""


def bind(argv: tuple[str, ...], node: int | None) -> Binding:
    """CPUs and memory of `node`; without numactl on this host the CPUs alone, and a note. NoNode."""
    if node is None:
        return Binding(argv)
    cpus = cpus_of(node)
    numactl = shutil.which("numactl")
    if numactl:
        return Binding((numactl, f"--cpunodebind={node}", f"--membind={node}", "--", *argv))
    note = f"numactl is not installed: bound to the CPUs of NUMA node {node}, but not to its memory"
    return Binding(argv, partial(os.sched_setaffinity, 0, cpus), note)


def cpus_of(node: int) -> set[int]:
    try:
        text = (NODES / f"node{node}" / "cpulist").read_text()
    except OSError:
        there = sorted(int(p.name[4:]) for p in NODES.glob("node[0-9]*"))
        raise NoNode(f"there is no NUMA node {node} here (there is: {', '.join(map(str, there))})") from None
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    if not cpus:
        raise NoNode(f"NUMA node {node} has no CPUs")
    return cpus
