"""A closed terminal, a lost session and a kill end a verb as Ctrl-C does: it cleans up, heard or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdctl.exits import Exit
from tests.pdctl.terminal import Terminal

# A verb like a drill: it changes something, waits, and puts it back while it says so, line by line.
DRILL = """
import sys, time
from pathlib import Path
import pdctl.__main__ as entry
from pdctl.render.progress import Progress

folder = Path(sys.argv[1])

def drill(args):
    progress = Progress()
    try:
        (folder / "changed").touch()
        for second in range(600):
            progress.wait(f"drilling, {second}")
            time.sleep(0.05)
    finally:
        (folder / "cleaning").touch()
        while not (folder / "go").exists():
            progress.say("putting back")
            time.sleep(0.01)
        print("put back")
        (folder / "changed").unlink()
    return 0

entry.run = drill
sys.exit(entry.main([]))
"""

# A verb that asks many at once, and is in the middle of that.
LOOK = """
import asyncio, sys
from concurrent.futures import Future
import pdctl.__main__ as entry

async def one():
    await asyncio.wait_for(asyncio.wrap_future(Future()), 60)

async def look():
    both = asyncio.gather(one(), one())
    print("looking", flush=True)
    await asyncio.sleep(60)
    await both

entry.run = lambda args: asyncio.run(look())
sys.exit(entry.main([]))
"""

# One that is broken off where a client's connections are open: it is collected when no loop runs any more.
OPEN = """
import asyncio, sys, time, types
import pdctl.__main__ as entry

class Client:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        asyncio.get_running_loop()

@types.coroutine
def answer():
    yield

async def ask():
    async with Client():
        await answer()

def run(args):
    asking = ask()
    asking.send(None)
    print("looking", flush=True)
    time.sleep(60)

entry.run = run
sys.exit(entry.main([]))
"""


def until(check: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 30.0
    while not check():
        assert time.monotonic() < end, f"waited 30 s: {what}"
        time.sleep(0.01)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def started(process: subprocess.Popen[bytes], folder: Path) -> None:
    until(lambda: (folder / "changed").exists() or process.poll() is not None, "the drill to begin")
    assert process.poll() is None


def cleaned(process: subprocess.Popen[bytes], folder: Path) -> int:
    """Let the clean-up end; the exit code of a process that has put back what it changed."""
    (folder / "go").touch()
    code = process.wait(30)
    assert not (folder / "changed").exists()
    return code


def test_a_closed_terminal_leaves_nothing_changed(terminal: Terminal, tmp_path: Path) -> None:
    process = terminal.run("-c", DRILL, str(tmp_path))
    started(process, tmp_path)
    terminal.close()
    until(lambda: (tmp_path / "cleaning").exists(), "the clean-up to begin")
    assert cleaned(process, tmp_path) == Exit.INTERRUPTED


def test_what_a_dying_session_sends_besides_breaks_no_clean_up(terminal: Terminal, tmp_path: Path) -> None:
    process = terminal.run("-c", DRILL, str(tmp_path))
    started(process, tmp_path)
    process.send_signal(signal.SIGTERM)
    until(lambda: (tmp_path / "cleaning").exists(), "the clean-up to begin")
    terminal.close()
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
        process.send_signal(number)
        time.sleep(0.05)
    assert cleaned(process, tmp_path) == Exit.INTERRUPTED


def test_nohup_stays_nohup(terminal: Terminal, tmp_path: Path) -> None:
    process = terminal.run("-c", DRILL, str(tmp_path), ignoring=signal.SIGHUP)
    started(process, tmp_path)
    terminal.close()
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    assert not (tmp_path / "cleaning").exists()
    process.send_signal(signal.SIGTERM)
    assert cleaned(process, tmp_path) == Exit.INTERRUPTED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_with_nobody_reading_progress_still_cleans_up(
    tmp_path: Path, number: signal.Signals
) -> None:
    """As behind `2>&1 | tee`, whose tee is gone: progress goes nowhere and nothing stops halfway for it."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRILL, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    started(process, tmp_path)
    process.stderr.close()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(number)
    assert cleaned(process, tmp_path) == Exit.INTERRUPTED
    assert process.stdout.read() == b"put back\n"


@pytest.mark.parametrize("program", [LOOK, OPEN], ids=["tasks", "connections"])
def test_an_interrupt_in_the_middle_of_a_look_shows_no_traceback(program: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "looking\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (Exit.INTERRUPTED, "pdctl: Interrupted.\n")


def test_a_reader_that_has_enough_ends_a_result_quietly() -> None:
    """`pdctl ... | head -1`"""
    code = "import pdctl.__main__ as m, sys\n"
    code += "m.run = lambda args: [print('line', n) for n in range(100000)] and 0\nsys.exit(m.main([]))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == Exit.OK
    assert process.stderr.read() == b""


def test_an_error_keeps_its_exit_code_when_nobody_reads_it() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "pdctl", "status", "--fleet=/no/where", "--json"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (Exit.USAGE, b"")
