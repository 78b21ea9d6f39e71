"""Tools that are sent to hosts run on an old Python with nothing installed, and say what is wrong."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pdctl.errors import ConfigError, DeadlineError
from pdctl.remote import audit_tool, lock_tool, tool
from pdctl.remote.tool import call_tool
from pdctl.transport.command import Command, Result
from pdctl.transport.local import LocalTransport


@pytest.mark.parametrize("module", [lock_tool, audit_tool])
def test_a_tool_needs_nothing_but_an_old_python(module: ModuleType) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text(), feature_version=(3, 9))
    named = [n for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names]
    tops = {n.name.partition(".")[0] for n in named}
    tops |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert tops <= sys.stdlib_module_names


def test_a_python_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"looking on h1 failed: /no/python: No such file"):
        call_tool(LocalTransport("h1"), "/no/python", lock_tool, "look", {"root": str(tmp_path)}, "looking")


def test_a_host_that_hangs_is_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "QUICK", 0.3)
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    with pytest.raises(DeadlineError, match=r"looking on h1 did not end in 0\.3 s"):
        call_tool(LocalTransport("h1"), str(slow), lock_tool, "look", {"root": str(tmp_path)}, "looking")


class Unprivileged(LocalTransport):
    """A login that may not write in the root's folder until it was made by root for it."""

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.made: list[Command] = []

    def run(self, command: Command, deadline: float) -> Result:
        if command.root:
            self.made.append(command)
        elif "-" in command.raw() and not self.made:
            return Result(tool.DENIED, b"", b"/opt/pdctl: Permission denied\n", 0.0)
        return super().run(command, deadline)


def test_a_root_is_made_once_by_root_for_the_login(tmp_path: Path) -> None:
    root = tmp_path / "opt" / "fleet"
    transport = Unprivileged("h1")
    ask = {"root": str(root), "lines": [{"what": "x"}]}
    assert call_tool(transport, sys.executable, audit_tool, "append", ask, "writing") == {"written": 1}
    call_tool(transport, sys.executable, audit_tool, "append", ask, "writing")
    assert len(transport.made) == 1 and (root / "audit.jsonl").read_text().count("\n") == 2


def test_a_root_of_somebody_else_is_left_to_them(tmp_path: Path) -> None:
    transport = Unprivileged("h1")
    ask = {"root": str(tmp_path), "lines": [{"what": "x"}]}
    with pytest.raises(ConfigError, match=r"writing on h1 failed: /opt/pdctl: Permission denied"):
        call_tool(transport, sys.executable, audit_tool, "append", ask, "writing")
    assert transport.made == []
