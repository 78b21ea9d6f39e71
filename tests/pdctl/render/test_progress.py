"""Progress lines of hosts that are worked on at once stay whole."""

from __future__ import annotations

import re
import threading

import pytest

from pdctl.render.progress import Progress


def test_lines_said_at_once_stay_whole(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()

    def work(host: int) -> None:
        for step in range(200):
            progress.say(f"h{host}: step {step}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1600
    assert all(re.fullmatch(r" *\d+\.\d s  h\d: step \d+", line) for line in lines)


def test_what_is_waited_for_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    for _ in range(3):
        progress.wait("waiting for decode-0")
    progress.say("ready")
    progress.wait("waiting for decode-0")
    said = [line.split("s  ")[1] for line in capsys.readouterr().err.splitlines()]
    assert said == ["waiting for decode-0", "ready", "waiting for decode-0"]
