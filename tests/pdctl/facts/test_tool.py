"""The host tool as a whole: one script, old Pythons, one round trip, root only where it tells more."""

from __future__ import annotations

import ast
import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pdctl.errors import DeadlineError, PdctlError
from pdctl.facts import probes
from pdctl.facts.ask import PARTS, ask, source
from pdctl.facts.missing import Missing
from pdctl.transport.command import Command, Result
from pdctl.transport.local import LocalTransport

HERE = LocalTransport("here")


def test_every_part_is_in_the_script() -> None:
    files = {p.stem for p in Path(str(probes.__file__)).parent.glob("*.py")} - {"__init__"}
    assert set(PARTS) == files


def test_the_script_is_python_3_9_and_needs_only_its_library() -> None:
    tree = ast.parse(source(), feature_version=(3, 9))
    modules = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    modules += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    assert {str(m).partition(".")[0] for m in modules} <= sys.stdlib_module_names


def test_no_part_hides_a_name_of_another() -> None:
    """They become one module."""
    seen: dict[str, str] = {}
    for part in PARTS:
        text = (Path(str(probes.__file__)).parent / f"{part}.py").read_text()
        for node in ast.parse(text).body:
            names = [node.name] if isinstance(node, ast.FunctionDef) else []
            targets = node.targets if isinstance(node, ast.Assign) else []
            names += [t.id for t in targets if isinstance(t, ast.Name)]
            for name in names:
                assert name not in seen, f"{name} is in {seen[name]} and {part}"
                seen[name] = part


def test_many_subjects_in_one_round_trip_and_one_that_fails_hides_none() -> None:
    class Counting(LocalTransport):
        runs = 0

        def run(self, command: Command, deadline: float) -> Result:
            self.runs += 1
            return super().run(command, deadline)

    here = Counting("here")
    request = {"clock": {}, "shm": {}, "spare": {"address": "198.51.100.7", "count": 1}}
    answers = ask(here, sys.executable, request)
    assert here.runs == 1
    assert answers.of("shm")["total"] > 0
    assert isinstance(answers.of("spare"), Missing)
    assert isinstance(answers.of("gpu"), Missing), "it was not asked"


def test_a_python_that_is_not_there_is_no_reason_to_know_nothing() -> None:
    assert ask(HERE, "/nowhere/python", {"boot": {}}).of("boot") == ask(
        HERE, sys.executable, {"boot": {}}
    ).of("boot")


def test_what_is_no_python_says_so() -> None:
    with pytest.raises(PdctlError) as caught:
        ask(HERE, "/bin/true", {"clock": {}})
    assert caught.value.code == "no_facts" and "3.9" in caught.value.hint


def test_a_tool_that_hangs_ends_at_its_deadline() -> None:
    request = {"reach": {"targets": [], "goodbye": [], "seconds": 1}, "clock": {}}
    hanging = ["sh", "-c", "exec sleep 60"]
    with pytest.raises(DeadlineError):
        ask(_Instead(hanging), sys.executable, request, deadline=0.3)


class _Instead(LocalTransport):
    """Runs another command in place of the tool."""

    def __init__(self, argv: list[str]) -> None:
        super().__init__("here")
        self._argv = argv

    def run(self, command: Command, deadline: float) -> Result:
        return super().run(Command(tuple(self._argv)), deadline)


class Unprivileged(LocalTransport):
    """A login that is not root; `sudo` as the host lets it."""

    def __init__(self, sudo: bool) -> None:
        super().__init__("here")
        self.sudo = sudo
        self.asked: list[bool] = []

    def run(self, command: Command, deadline: float) -> Result:
        self.asked.append(command.root)
        if command.root and not self.sudo:
            raise PdctlError("sudo_password", "sudo wants a password.")
        drop = () if command.root else ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        return super().run(Command((*drop, *command.argv), stdin=command.stdin), deadline)


@pytest.fixture
def python() -> str:
    """An interpreter that another user may run."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    for path in ("/usr/bin/python3", sys.executable):
        tried = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", path, "-c", ""], check=False
        )
        if tried.returncode == 0:
            return path
    pytest.skip("no interpreter that another user may run")


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def holder(transport: LocalTransport, python: str, port: int) -> dict[str, object]:
    answers = ask(transport, python, {"ports": {"wanted": [["127.0.0.1", port]]}})
    found: dict[str, object] = answers.of("ports")[0]["holders"][0]
    return found


def test_root_is_asked_when_only_root_sees_who_holds_a_port(python: str, listener: int) -> None:
    login = Unprivileged(sudo=True)
    assert holder(login, python, listener)["pid"] == os.getpid()
    assert login.asked == [False, True]


def test_without_root_what_is_known_stands(python: str, listener: int) -> None:
    login = Unprivileged(sudo=False)
    found = holder(login, python, listener)
    assert found["pid"] is None and found["user"] == "root"


def test_root_is_not_asked_for_what_anybody_sees(python: str) -> None:
    login = Unprivileged(sudo=True)
    ask(login, python, {"ports": {"wanted": [["127.0.0.1", 9]]}, "clock": {}, "memlock": {}, "gpu": {}})
    assert login.asked == [False]


def test_threads_that_put_it_together_at_once_do_not_hurt_one_another() -> None:
    """As the hosts of a fleet do; the collector gives way to the other thread at its worst moment."""

    def yields(*_: object) -> None:
        time.sleep(0.001)

    before, whole = gc.get_threshold(), source()
    gc.callbacks.append(yields)
    gc.set_threshold(300)
    try:
        with ThreadPoolExecutor(2) as pool:
            made = [pool.submit(source.__wrapped__) for _ in range(6)]
            assert all(future.result() == whole for future in made)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(yields)
