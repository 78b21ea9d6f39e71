"""What every transport promises. A test file takes part by importing all of this and giving a `there`."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdctl.errors import DeadlineError, PdctlError
from pdctl.transport.base import Transport, checked
from pdctl.transport.command import Command, Secret


@dataclass(frozen=True)
class There:
    """A transport and what a test may know of its other end.

    `here` is where this process finds a path of that machine; `folder` is empty and the login user's own.
    """

    transport: Transport
    python: str
    folder: str
    here: Callable[[str], Path]

    def code(self, text: str, *args: str) -> Command:
        return Command((self.python, "-c", text, *args))

    def lives(self, pid: int) -> bool:
        """Whether that machine has the process; a zombie does not count."""
        try:
            state = self.here(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state not in "ZX"

    def gone(self, *pids: int, within: float = 10.0) -> None:
        end = time.monotonic() + within
        while any(self.lives(pid) for pid in pids):
            assert time.monotonic() < end, f"still there: {[pid for pid in pids if self.lives(pid)]}"
            time.sleep(0.02)


FAMILY = (
    "import os, subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(os.getpid(), child.pid, flush=True); time.sleep(600)"
)


def test_the_exit_code_and_both_streams_come_back(there: There) -> None:
    command = there.code("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    result = there.transport.run(command, 20)
    assert (result.rc, result.stdout, result.stderr, result.timed_out) == (7, b"out\n", b"err\n", False)


def test_a_signal_is_a_negative_exit_code(there: There) -> None:
    assert there.transport.run(Command(("sh", "-c", "kill -TERM $$")), 20).rc == -15
    assert there.transport.run(Command(("sh", "-c", "exit 143")), 20).rc == 143


def test_megabytes_on_both_streams_do_not_block(there: There) -> None:
    code = "import os\nfor _ in range(80):\n os.write(2, b'e' * 65536); os.write(1, b'o' * 65536)"
    result = there.transport.run(there.code(code), 60)
    assert (len(result.stdout), len(result.stderr)) == (80 * 65536, 80 * 65536)


def test_stdin_env_and_folder_arrive(there: There) -> None:
    code = "import os, sys; print(os.environ['AB'], os.getcwd(), end='');"
    code += "sys.stdout.flush(); sys.stdout.buffer.write(sys.stdin.buffer.read())"
    command = Command(
        (there.python, "-c", code),
        env={"AB": "x 'y' $z\nnaïve"},
        cwd=there.folder,
        stdin=bytes(range(256)) * 40_000,
    )
    result = there.transport.run(command, 60)
    assert result.stdout == f"x 'y' $z\nnaïve {there.folder}".encode() + bytes(range(256)) * 40_000


def test_tens_of_megabytes_of_stdin_need_not_be_read(there: There) -> None:
    result = there.transport.run(Command(("sh", "-c", "head -c 3; exit 4"), stdin=b"abcdef" * 5_000_000), 60)
    assert (result.rc, result.stdout) == (4, b"abc")


def test_arguments_are_passed_as_they_are(there: There) -> None:
    words = ("a b", "$HOME", "`id`", "it's", "", "naïve 日本", "*", "a\nb", "!x", "\\", "-n", "x" * 100_000)
    result = there.transport.run(there.code("import json, sys; print(json.dumps(sys.argv[1:]))", *words), 20)
    assert tuple(json.loads(result.stdout)) == words


def test_output_that_is_not_text_is_kept(there: There) -> None:
    result = there.transport.run(there.code("import sys; sys.stdout.buffer.write(b'\\xff\\x00\\xfe')"), 20)
    assert result.stdout == b"\xff\x00\xfe"
    assert result.text == "\ufffd\x00\ufffd"


def test_at_the_deadline_the_whole_group_is_ended(there: There) -> None:
    result = there.transport.run(there.code(FAMILY), 2.0)
    assert result.timed_out and result.rc == -9
    pids = [int(word) for word in result.stdout.split()]
    assert len(pids) == 2
    there.gone(*pids)


def test_a_group_that_outlives_its_leader_is_ended_at_the_deadline(there: There) -> None:
    result = there.transport.run(Command(("sh", "-c", "sleep 600 & echo $!; exit 3")), 1.5)
    assert (result.rc, result.timed_out) == (3, True)
    there.gone(int(result.stdout))


def test_what_is_left_in_the_background_on_purpose_lives_on(there: There) -> None:
    command = Command(("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"))
    result = there.transport.run(command, 20)
    assert (result.rc, result.timed_out) == (0, False)
    pid = int(result.stdout)
    assert there.lives(pid)
    there.transport.run(Command(("kill", "-9", str(pid))), 10)
    there.gone(pid)


def test_a_missing_program_is_a_result(there: There) -> None:
    result = there.transport.run(Command(("/no/such/program",)), 10)
    assert result.rc == 127
    assert result.stderr == b"/no/such/program: No such file or directory"


def test_a_missing_folder_is_a_result(there: There) -> None:
    result = there.transport.run(Command(("true",), cwd="/no/such/folder"), 10)
    assert (result.rc, result.stderr) == (127, b"/no/such/folder: No such file or directory")


def test_many_at_once_keep_their_own_output(there: There) -> None:
    def one(number: int) -> bytes:
        code = "import sys\nfor _ in range(200): print(sys.argv[1] * 500)"
        return there.transport.run(there.code(code, str(number % 10)), 60).stdout

    with ThreadPoolExecutor(24) as pool:
        results = list(pool.map(one, range(24)))
    assert results == [(str(n % 10).encode() * 500 + b"\n") * 200 for n in range(24)]


def test_a_slow_command_does_not_hold_up_another(there: There) -> None:
    go = f"{there.folder}/go"
    wait = Command(("sh", "-c", f"until test -e {go}; do sleep 0.02; done"))
    slow = threading.Thread(target=there.transport.run, args=(wait, 60))
    slow.start()
    assert there.transport.run(Command(("echo", "quick")), 20).text == "quick\n"
    assert slow.is_alive()
    there.transport.put(b"", go)
    slow.join(30)
    assert not slow.is_alive()


def test_put_is_whole_private_and_replaces(there: There) -> None:
    target = f"{there.folder}/new/folder/file"
    there.transport.put(b"\x00\xff" * 3_000_000, target, 0o600)
    here = there.here(target)
    assert here.stat().st_mode & 0o777 == 0o600
    assert here.parent.stat().st_mode & 0o777 == 0o700
    assert there.transport.get(target) == b"\x00\xff" * 3_000_000
    there.transport.put(b"short", target, 0o666)
    assert (here.read_bytes(), here.stat().st_mode & 0o777) == (b"short", 0o666)
    there.transport.put(b"", target)
    assert (here.read_bytes(), here.stat().st_mode & 0o777) == (b"", 0o644)
    assert os.listdir(here.parent) == ["file"]


def test_get_stops_at_its_limit(there: There) -> None:
    there.transport.put(b"0123456789", f"{there.folder}/file")
    assert there.transport.get(f"{there.folder}/file", limit=4) == b"0123"


def test_a_missing_file_has_its_own_code(there: There) -> None:
    with pytest.raises(PdctlError) as caught:
        there.transport.get(f"{there.folder}/absent")
    assert caught.value.code == "no_file"


def test_a_folder_is_not_read(there: There) -> None:
    with pytest.raises(PdctlError) as caught:
        there.transport.get(there.folder)
    assert caught.value.code == "cannot_read"
    message = f"{there.folder} cannot be read on {there.transport.host}: Is a directory."
    assert caught.value.message == message


def test_a_file_in_the_way_is_a_sentence(there: There) -> None:
    there.transport.put(b"", f"{there.folder}/file")
    with pytest.raises(PdctlError) as caught:
        there.transport.put(b"", f"{there.folder}/file/below")
    assert caught.value.code == "cannot_write"


def test_a_folder_in_the_way_leaves_nothing_behind(there: There) -> None:
    there.here(f"{there.folder}/taken/x").mkdir(parents=True)
    with pytest.raises(PdctlError) as caught:
        there.transport.put(b"data", f"{there.folder}/taken/x")
    assert caught.value.code == "cannot_write"
    assert os.listdir(there.here(f"{there.folder}/taken")) == ["x"]


def test_checked_names_host_command_and_what_was_said(there: There) -> None:
    command = Command((there.python, "-c", "import sys; sys.exit('it broke')", Secret("tok-123")))
    with pytest.raises(PdctlError) as caught:
        checked(there.transport, command, 20, "the step")
    error = caught.value
    assert error.message == f"the step on {there.transport.host} failed with exit code 1."
    assert "it broke" in error.details
    assert "tok-123" not in str(error.document())
    with pytest.raises(DeadlineError):
        checked(there.transport, there.code("import time; time.sleep(60)"), 0.3, "the step")


ECHO = (
    "import socket\n"
    "server = socket.create_server(('127.0.0.1', 0)); print(server.getsockname()[1], flush=True)\n"
    "while True:\n"
    " client, _ = server.accept(); data = b''\n"
    " while part := client.recv(65536): data += part\n"
    " client.sendall(data[::-1]); client.close()\n"
)


@pytest.fixture
def echo_port(there: There) -> int:
    """A server there that answers, reversed, once the client has said all it had to say."""
    there.transport.put(ECHO.encode(), f"{there.folder}/echo.py")
    start = f"{there.python} {there.folder}/echo.py >{there.folder}/port 2>&1 & echo $!"
    pid = int(there.transport.run(Command(("sh", "-c", start)), 20).text)
    end = time.monotonic() + 20
    while not (port := there.transport.get(f"{there.folder}/port").strip()):
        assert time.monotonic() < end
        time.sleep(0.02)
    yield int(port)
    there.transport.run(Command(("kill", "-9", str(pid))), 10)


def test_a_dialled_socket_carries_bytes_and_half_closes(there: There, echo_port: int) -> None:
    data = os.urandom(3_000_000)
    with there.transport.dial("127.0.0.1", echo_port) as link:
        link.settimeout(30)
        link.sendall(data)
        link.shutdown(socket.SHUT_WR)
        got = b""
        while part := link.recv(1 << 16):
            got += part
    assert got == data[::-1]


def test_a_port_where_nobody_listens_is_refused(there: There) -> None:
    with pytest.raises(ConnectionRefusedError):
        there.transport.dial("127.0.0.1", 1, 10)
