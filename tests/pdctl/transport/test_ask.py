"""A question stands on a line of its own, whatever is being waited for."""

from __future__ import annotations

import os

import pytest

from pdctl.exits import Exit
from tests.pdctl.terminal import Terminal

ASK = """
import sys
from pdctl.cli import session
from pdctl.render.progress import Progress
from pdctl.transport.ssh import ask

Progress().wait("looking at h1")
yes_or_no = lambda question: session.confirm(question, False)
{"passphrase": ask.passphrase, "trust": ask.confirm, "go on": yes_or_no}[sys.argv[1]]("key?")
"""


@pytest.mark.parametrize("what", ["passphrase", "trust", "go on"])
def test_a_question_is_not_glued_to_the_progress_line(what: str) -> None:
    terminal = Terminal()
    process = terminal.run("-c", ASK, what)
    said = ""
    while "key?" not in said:
        said += os.read(terminal.master, 4096).decode()
    os.write(terminal.master, b"yes\n")
    assert process.wait(30) == Exit.OK
    terminal.close()
    before = said.partition("key?")[0].removesuffix("Passphrase of ")
    assert before.endswith("looking at h1\r\x1b[2K")
