"""A rank and a parent that is silent: the parent is woken, or killed, and nobody is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Literal

import msgspec
import pytest

from engine.core.framing import Channel
from engine.group.control import Control
from engine.group.messages import Fatal, ParentBeat, RankBeat, Stop, ToParent

# A parent that starts one rank, beats a number of times, and prints what it reads from the rank.
PARENT = """
import os, socket, subprocess, sys, threading, time
from engine.core.framing import Channel
from engine.group.messages import ParentBeat
ours, theirs = socket.socketpair()
rank = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(theirs.fileno())], pass_fds=[theirs.fileno()])
theirs.close()
channel = Channel(ours)
def read():
    while True:
        print(channel.receive().hex(), flush=True)
threading.Thread(target=read, daemon=True).start()
for _ in range(int(sys.argv[2])):
    channel.send(ParentBeat())
    time.sleep(0.1)
time.sleep(60)
"""
RANK = """
import socket, sys
from engine.core.framing import Channel
from engine.group.control import Control, beat
from engine.group.outbox import Outbox
from engine.group.rank import die_with_parent
die_with_parent()
channel = Channel(socket.socket(fileno=int(sys.argv[1])))
beat(Outbox(channel, "parent", lambda why: None), 3, Control(channel), 1.0)
"""


def words(parent: subprocess.Popen[str]) -> list[object]:
    assert parent.stdout is not None
    return [msgspec.msgpack.decode(bytes.fromhex(line), type=ToParent) for line in parent.stdout]


@pytest.mark.parametrize("how", ["hung", pytest.param("stopped", marks=pytest.mark.slow)])
def test_a_parent_that_does_not_come_round_is_killed_and_its_rank_ends(
    how: Literal["hung", "stopped"],
) -> None:
    """Hung: its process runs and its event loop does not. It hears why before it is killed."""
    beats = 10 if how == "hung" else 10_000
    argv = [sys.executable, "-c", PARENT, RANK, str(beats)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        first = msgspec.msgpack.decode(bytes.fromhex(parent.stdout.readline()), type=ToParent)
        assert isinstance(first, RankBeat)
        if how == "stopped":
            parent.send_signal(signal.SIGSTOP)
            # Woken, it beats again and would live on: it is its watch that ends it, which this one has not.
        assert parent.wait(30.0) == -signal.SIGKILL
        said = [w for w in words(parent) if isinstance(w, Fatal)]
    assert [(w.rank, w.exit) for w in said] == [(3, 72)]
    assert said[0].message.startswith(f"the API process (pid {parent.pid}) was silent for ")
    deadline = time.monotonic() + 10.0
    while os.path.exists(f"/proc/{first.pid}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{first.pid}"), "the rank outlives its parent"


def test_beats_are_heard_and_never_delivered() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        control, parent = Control(Channel(theirs)), Channel(ours)
        time.sleep(0.05)
        before = control.silence
        parent.send(ParentBeat())
        parent.send(Stop())
        assert isinstance(control.receive(), Stop) and control.silence < before
        control.forgive(1000.0)
        assert 0.0 <= control.silence < 0.05, "its own freeze is forgiven, and no credit is given for later"
        ours.shutdown(socket.SHUT_RDWR)
        assert control.receive() is None
