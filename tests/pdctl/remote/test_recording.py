"""Everything that a transport executes during a run is in the journal, and no secret is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pdctl.errors import PdctlError, UnreachableError
from pdctl.remote.recording import Executed, RecordingTransport
from pdctl.transport.command import Command, Secret
from pdctl.transport.local import LocalTransport


@pytest.fixture
def seen() -> list[Executed]:
    return []


@pytest.fixture
def transport(seen: list[Executed]) -> RecordingTransport:
    return RecordingTransport(LocalTransport("h1"), seen.append)


def test_a_command_is_recorded_masked_with_its_end(
    transport: RecordingTransport, seen: list[Executed]
) -> None:
    code = "import sys; print(sys.stdin.read(), end=''); sys.exit(3)"
    command = Command(
        (sys.executable, "-c", code, Secret("tok-1")), env={"KEY": Secret("tok-2")}, stdin=b"tok-3"
    )
    assert transport.run(command, 20).stdout == b"tok-3"
    (one,) = seen
    assert (one.host, one.rc, one.bytes) == ("h1", 3, 10)
    assert one.command == command.masked() and "tok-" not in repr(one)


def test_what_ran_out_of_time_has_no_exit_code(transport: RecordingTransport, seen: list[Executed]) -> None:
    transport.run(Command((sys.executable, "-c", "import time; time.sleep(60)")), 0.3)
    assert [e.rc for e in seen] == [None]


def test_files_are_recorded_by_path_and_size(
    transport: RecordingTransport, seen: list[Executed], tmp_path: Path
) -> None:
    path = str(tmp_path / "env")
    transport.put(b"TOKEN=tok-4", path, 0o600)
    assert transport.get(path) == b"TOKEN=tok-4"
    with pytest.raises(PdctlError):
        transport.get(f"{path}.no")
    assert [(e.command, e.rc, e.bytes) for e in seen] == [
        (f"put {path} mode 0600", 0, 11),
        (f"get {path}", 0, 11),
        (f"get {path}.no", 1, 0),
    ]


def test_a_host_that_cannot_be_reached_is_recorded_too(seen: list[Executed]) -> None:
    class Gone(LocalTransport):
        def run(self, *args, **more):
            raise UnreachableError("gone", "No way there.")

        put = get = run

    transport = RecordingTransport(Gone("h2"), seen.append)
    for call in (
        lambda: transport.run(Command(("true",)), 1),
        lambda: transport.put(b"", "/x"),
        lambda: transport.get("/x"),
    ):
        with pytest.raises(UnreachableError):
            call()
    assert [(e.host, e.command, e.rc) for e in seen] == [
        ("h2", "true", None),
        ("h2", "put /x mode 0644", None),
        ("h2", "get /x", None),
    ]
