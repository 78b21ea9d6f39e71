"""`python -m engine probe`: two real ends on loopback, and every way in which they do not come together."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from engine.core.errors import ConfigError, Exit
from engine.probe import run_probe
from engine.transfer.probe import Probe, Write


class End:
    """One `engine probe` process."""

    def __init__(
        self, side: str, port: int, word: str = "hush", *more: str, deadline: float = 60.0, **env: str
    ) -> None:
        argv = [sys.executable, "-m", "engine", "probe", f"--{side}", f"127.0.0.1:{port}"]
        argv += ["--deadline", str(deadline), *more]
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.close()
        self.process.stdin = None

    def result(self) -> tuple[int, dict[str, Any]]:
        out, err = self.process.communicate(timeout=120)
        assert out.endswith("}\n"), (out, err)
        return self.process.returncode, json.loads(out.splitlines()[-1])


@pytest.fixture
def ends() -> Iterator[list[End]]:
    made: list[End] = []
    yield made
    for end in made:
        if end.process.poll() is None:
            end.process.kill()
            end.process.communicate()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
    return number


def test_bytes_go_both_ways_and_both_ends_say_the_same(ends: list[End], port: int) -> None:
    # The dialer may well be there first: it tries again.
    ends += [End("dial", port), End("listen", port)]
    (dial_code, dialed), (listen_code, listened) = ends[0].result(), ends[1].result()
    assert (dial_code, listen_code) == (0, 0), (dialed, listened)
    assert dialed["ok"] and dialed["out"]["verified"] and dialed["back"]["verified"]
    assert dialed["out"]["bytes"] == 4 * (16 << 20) and dialed["out"]["gb_s"] > 0
    assert (dialed["out"], dialed["back"]) == (listened["back"], listened["out"])
    assert dialed["versions"] == listened["theirs"] and dialed["versions"]["nixl"]


def test_another_word_is_a_stranger(ends: list[End], port: int) -> None:
    ends += [End("listen", port, "hush"), End("dial", port, "loud")]
    results = [end.result() for end in ends]
    assert all(code == Exit.PATH and not said["ok"] for code, said in results)
    assert "probe_stranger" in {said["code"] for _, said in results}


def test_nobody_there_is_said_at_the_deadline(ends: list[End], port: int) -> None:
    ends.append(End("dial", port, deadline=1.0))
    code, said = ends[0].result()
    assert code == Exit.PATH and said["code"] == "probe_unreachable" and "refused" in said["error"]


def test_a_transport_that_ucx_does_not_have_is_a_sentence(ends: list[End], port: int) -> None:
    ends += [End("dial", port, UCX_TLS="shm,self"), End("listen", port)]
    code, said = ends[0].result()
    assert code == Exit.PATH and said["code"] == "probe_transfer", said
    assert "NIXL could not start the agent" in said["error"] and said["ucx"] == {"UCX_TLS": "shm,self"}
    assert ends[1].result()[0] == Exit.PATH


def test_other_sizes_are_refused(ends: list[End], port: int) -> None:
    ends += [End("listen", port, "hush", "--bytes", "1048576"), End("dial", port)]
    assert "probe_sizes" in {end.result()[1]["code"] for end in ends}


def test_a_silent_peer_ends_at_the_deadline_naming_where_it_was(ends: list[End]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ends.append(End("dial", silent.getsockname()[1], deadline=6.0))
        visitor, _ = silent.accept()
        code, said = ends[0].result()
        visitor.close()
    assert code == Exit.PATH and said["code"] == "probe_deadline" and "meet" in said["error"]


HELD = """
import re, sys
import engine.probe
engine.probe.Probe = lambda *args: re.match("(a+)+$", "a" * 60 + "b")  # for years, without a thread switch
sys.exit(engine.probe.run_probe(sys.argv[1:]))
"""


def test_a_call_that_never_comes_back_is_ended_all_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        argv = [sys.executable, "-c", HELD, "--dial", where, "--deadline", "1"]
        done = subprocess.run(argv, input="hush\n", capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGALRM


@pytest.mark.parametrize(
    "flags", [["--dial", "nowhere"], ["--dial", "h:99999"], ["--listen", "h:1", "--bytes", "0"]]
)
def test_a_wrong_flag_is_a_sentence(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        run_probe(flags)
    assert caught.value.exit == Exit.CONFIG and caught.value.message and capsys.readouterr().out == ""


def test_no_word_is_a_sentence(port: int) -> None:
    argv = [sys.executable, "-m", "engine", "probe", "--dial", f"127.0.0.1:{port}"]
    done = subprocess.run(argv, input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == Exit.CONFIG and done.stdout == ""
    assert done.stderr.startswith("engine: ") and "stdin" in done.stderr


class Liar(Probe):
    """Sends other bytes than it should."""

    def _fill(self, seed: bytes) -> None:
        super()._fill(seed)
        self._pool[0, 0, 0, 0, 0, 0] ^= 1


def test_damaged_bytes_are_found_by_the_end_that_got_them() -> None:
    left, right = socket.socketpair()
    end = time.monotonic() + 60.0
    honest = Probe(b"w", 1 << 20, "cpu", {})
    liar = Liar(b"w", 1 << 20, "cpu", {})
    found: dict[str, tuple[Write, Write]] = {}
    other = threading.Thread(target=lambda: found.update(liar=liar.run(left, True, end)), daemon=True)
    other.start()
    out, back = honest.run(right, False, end)
    other.join(60.0)
    assert out.right and not back.right
    assert not found["liar"][0].right, "and the sender is told"
    assert torch.equal(honest._pool[4:7], liar._pool[0:3]), "all but the damaged page arrived"
