"""One TCP connection of loopback whose packets are dropped, both ways, while both its ends keep it open."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from types import TracebackType

import pytest


class HalfOpen:
    """Between two ports; needs root and nft, else the test is skipped. The rules go when the block ends."""

    def __init__(self, one: int, other: int) -> None:
        if os.geteuid() != 0 or shutil.which("nft") is None:
            pytest.skip("needs root and nft")
        self._pairs = ((one, other), (other, one))
        self._table = f"half_open_{os.getpid()}"

    def __enter__(self) -> HalfOpen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["nft", "delete", "table", "inet", self._table], capture_output=True)

    def cut(self) -> None:
        chain = "type filter hook output priority 0;"
        rules = "".join(f"tcp sport {a} tcp dport {b} counter drop;" for a, b in self._pairs)
        text = f"table inet {self._table} {{ chain out {{ {chain}{rules} }}; }}\n"
        subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)

    def dropped(self) -> int:
        """Packets that did not arrive."""
        argv = ["nft", "-j", "list", "table", "inet", self._table]
        found = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
        rules = [row["rule"]["expr"] for row in found["nftables"] if "rule" in row]
        return sum(part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)
