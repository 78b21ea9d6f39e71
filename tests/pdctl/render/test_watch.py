"""`pdctl status --watch`: sparklines of own looks or of a supervisor's history, and a real terminal."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from pdctl.adapters.picture import Engine, Reach, Sample
from pdctl.facts.missing import Missing
from pdctl.flows.status import FleetStatus, observation
from pdctl.render.spark import spark
from pdctl.render.watch import frame
from pdctl.supervisor.history import History
from pdctl.supervisor.store import prepare
from pdctl.supervisor.trend import Trends, slotted
from tests.pdctl.render.test_status import status
from tests.pdctl.supervisor.sim import CELL, fleet_file, somewhere
from tests.pdctl.terminal import Terminal

NOW = 1_800_000_000.0


def at(shown: FleetStatus, when: float, tokens: int) -> FleetStatus:
    """`shown` at another time, its engines so many tokens further."""
    engines = []
    for each in shown.engines:
        picture = each.sample.picture
        assert isinstance(picture, Engine) and not isinstance(picture.progress, Missing)
        progress = replace(picture.progress, tokens_generated=tokens)
        sample = replace(each.sample, picture=replace(picture, progress=progress))
        engines.append(replace(each, sample=sample))
    return replace(shown, at=when, engines=tuple(engines))


def text(shown: FleetStatus, trends: Trends, width: int = 110, height: int = 40) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height)
    console.print(frame(shown, trends, width, height))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_a_spark_is_blank_for_the_unknown_and_tells_little_from_nothing() -> None:
    assert spark([None, 0, 0.001, 4, 8]) == " ▁▂▅█"
    assert spark([0, 0]) == "▁▁" and spark([]) == "" and spark([50, 100], most=100) == "▅█"


def test_slots_fold_a_queue_to_its_worst_and_a_rate_to_its_mean() -> None:
    points = [(0.0, 1.0), (5.0, 3.0), (10.0, None), (20.0, 2.0), (29.9, 4.0), (30.0, 9.0), (31.0, 7.0)]
    assert slotted(points, "waiting", 0.0, 10.0, 3) == [3.0, None, 9.0]
    assert slotted(points, "decode_rate", 0.0, 10.0, 3) == [2.0, None, 5.0]


def test_own_looks_are_drawn_while_no_supervisor_writes(tmp_path: Path) -> None:
    trends, first = Trends(tmp_path / "none.db"), status(tmp_path)
    for number in range(11):
        shown = at(first, NOW + 10 * number, tokens=500 * number)
        trends.add(observation(shown))
    lines = text(shown, trends)
    assert "5 min of own looks" in lines[0]
    prefill = next(line for line in lines if "prefill-0" in line)
    # Three requests wait; 50 tokens/s, but at the first look, which has none before it.
    assert re.search(r"▁?█{5,} +3 ", prefill) and re.search(r"█{5,} 50 ", prefill) and "3 %" in prefill


def test_a_running_supervisors_history_is_drawn_from_the_first_frame(tmp_path: Path) -> None:
    file, shown = tmp_path / "supervisor.db", status(tmp_path)
    prepare(file)
    history = History(file)
    for number in range(60):
        history.record(observation(at(shown, NOW - 295 + 5 * number, tokens=100 * number)))
    trends, now = Trends(file), at(shown, NOW, tokens=6000)
    lines = text(now, trends)
    assert "5 min of the supervisor's history" in lines[0]
    assert next(line for line in lines if "decode-0" in line).count("█") >= 2 * 19
    old = at(shown, NOW + 3600, tokens=0)  # it ended an hour ago
    assert "own looks" in text(old, trends)[0]


def test_where_not_all_fit_those_that_are_not_well_are_shown(tmp_path: Path) -> None:
    shown = status(tmp_path)
    decode = shown.engines[1]
    gone = Sample[Engine](Reach.REFUSED, Missing("refused"), "nothing listens on the port")
    many = [replace(decode, engine=replace(decode.engine, name=f"decode-{n}")) for n in range(30)]
    many[29] = replace(many[29], sample=gone)
    lines = text(replace(shown, engines=tuple(many)), Trends(tmp_path / "none.db"), height=20)
    assert len(lines) <= 20
    assert any("decode-29" in line and "refused" in line for line in lines)
    assert any("more" in line for line in lines)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_it_fits_the_terminals_width(tmp_path: Path, width: int) -> None:
    lines = text(status(tmp_path), Trends(tmp_path / "none.db"), width=width)
    assert max(map(len, lines)) <= width and any("decode-0" in line for line in lines)


def test_a_real_terminal_shows_it_and_is_left_as_it_was(tmp_path: Path) -> None:
    terminal = Terminal()
    with somewhere(CELL) as sim:
        path = fleet_file(tmp_path, CELL, sim.port)
        argv = ("-m", "pdctl", "--fleet", str(path), "status", "--watch", "--every", "0.2")
        process = terminal.run(*argv)
        try:
            seen = until(terminal, process, r"own looks[\s\S]*own looks[\s\S]*prefill-0-0[\s\S]*█")
            process.send_signal(signal.SIGINT)
            seen += until(terminal, process, re.escape("\x1b[?1049l"))
            assert process.wait(30) == 130
        finally:
            process.kill()
            terminal.close()
    assert "\x1b[?1049h" in seen and "Traceback" not in seen


def until(terminal: Terminal, process: subprocess.Popen[bytes], pattern: str) -> str:
    """What the terminal shows until it fits; not longer than the process runs."""
    seen, end = b"", time.monotonic() + 60
    while not re.search(pattern, said := seen.decode(errors="replace")):
        assert time.monotonic() < end and process.poll() is None, said[-2000:]
        if select.select([terminal.master], [], [], 1.0)[0]:
            seen += os.read(terminal.master, 1 << 16)
    return said
