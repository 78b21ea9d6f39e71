"""What every transport promises; another transport joins by adding itself to `transport`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.errors import ConfigError, DeadlineError, PdctlError
from pdctl.fleet.model import Host
from pdctl.fleet.schema import HostTable
from pdctl.procs import start_time
from pdctl.transport.base import Transport, checked
from pdctl.transport.command import Command, Secret
from pdctl.transport.open import open_transport


@pytest.fixture(params=["local"])
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    opened = open_transport(Host("here", HostTable(transport=request.param), "/nowhere"))
    yield opened
    opened.close()


def python(code: str, *args: str) -> Command:
    return Command((sys.executable, "-c", code, *args))


def test_the_exit_code_and_both_streams_come_back(transport: Transport) -> None:
    result = transport.run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"), 20)
    assert (result.rc, result.stdout, result.stderr, result.timed_out) == (7, b"out\n", b"err\n", False)


def test_megabytes_on_both_streams_do_not_block(transport: Transport) -> None:
    code = "import os\nfor _ in range(80):\n os.write(2, b'e' * 65536); os.write(1, b'o' * 65536)"
    result = transport.run(python(code), 60)
    assert (len(result.stdout), len(result.stderr)) == (80 * 65536, 80 * 65536)


def test_stdin_env_and_folder_arrive(transport: Transport, tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['AB'], os.getcwd(), end='');"
    code += "sys.stdout.flush(); sys.stdout.buffer.write(sys.stdin.buffer.read())"
    command = Command(
        (sys.executable, "-c", code),
        env={"AB": "x 'y' $z"},
        cwd=str(tmp_path),
        stdin=bytes(range(256)) * 40_000,
    )
    result = transport.run(command, 30)
    assert result.stdout == f"x 'y' $z {tmp_path}".encode() + bytes(range(256)) * 40_000


def test_arguments_are_passed_as_they_are(transport: Transport) -> None:
    words = ("a b", "$HOME", "`id`", "it's", "", "naïve 日本", "*", "a\nb")
    result = transport.run(python("import json, sys; print(json.dumps(sys.argv[1:]))", *words), 20)
    assert tuple(json.loads(result.stdout)) == words


def test_output_that_is_not_text_is_kept(transport: Transport) -> None:
    result = transport.run(python("import sys; sys.stdout.buffer.write(b'\\xff\\x00\\xfe')"), 20)
    assert result.stdout == b"\xff\x00\xfe"
    assert result.text == "\ufffd\x00\ufffd"


def test_at_the_deadline_the_whole_group_is_ended(transport: Transport) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(os.getpid(), child.pid, flush=True); time.sleep(600)"
    )
    result = transport.run(python(code), 3.0)
    assert result.timed_out
    pids = [int(word) for word in result.stdout.split()]
    assert len(pids) == 2
    end = time.monotonic() + 10
    while any(start_time(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_missing_program_is_a_result(transport: Transport) -> None:
    result = transport.run(Command(("/no/such/program",)), 10)
    assert result.rc == 127
    assert b"No such file" in result.stderr


def test_put_is_whole_private_and_replaces(transport: Transport, tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "file"
    transport.put(b"\x00\xff" * 3_000_000, str(target), 0o600)
    assert target.stat().st_mode & 0o777 == 0o600
    assert transport.get(str(target)) == b"\x00\xff" * 3_000_000
    transport.put(b"short", str(target), 0o644)
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"short", 0o644)
    assert os.listdir(target.parent) == ["file"]


def test_a_missing_file_has_its_own_code(transport: Transport, tmp_path: Path) -> None:
    with pytest.raises(PdctlError) as caught:
        transport.get(str(tmp_path / "absent"))
    assert caught.value.code == "no_file"


def test_a_file_in_the_way_is_a_sentence(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PdctlError) as caught:
        transport.put(b"", str(tmp_path / "file" / "below"))
    assert caught.value.code == "cannot_write"


def test_checked_names_host_command_and_what_was_said(transport: Transport) -> None:
    command = Command((sys.executable, "-c", "import sys; sys.exit('it broke')", Secret("tok-123")))
    with pytest.raises(PdctlError) as caught:
        checked(transport, command, 20, "the step")
    error = caught.value
    assert error.message == "the step on here failed with exit code 1."
    assert "it broke" in error.details
    assert "tok-123" not in str(error.document())
    with pytest.raises(DeadlineError):
        checked(transport, python("import time; time.sleep(60)"), 0.3, "the step")


def test_a_secret_is_seen_by_nobody_but_the_transport() -> None:
    command = Command(("login", Secret("pa ss")), env={"TOKEN": Secret("tok")}, cwd="/a b")
    assert command.masked() == "cd '/a b' && env TOKEN='***' login '***'"
    assert command.raw() == ["login", "pa ss"]
    assert command.raw_env() == {"TOKEN": "tok"}
    assert "pa ss" not in repr(command) and "tok" not in repr(command)


def test_ssh_is_not_in_this_version() -> None:
    with pytest.raises(ConfigError) as caught:
        open_transport(Host("gpu1", HostTable(transport="ssh", address="10.0.0.1"), "/opt/pdctl"))
    assert caught.value.message == "hosts.gpu1.transport: ssh is not in this version of pdctl."
