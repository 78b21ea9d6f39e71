"""What a deploy and `pdctl logs` read from the process backend."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.pdctl.units.conftest import Bench

SERVES = "print('one'); print('two'); print('three', flush=True); tell('READY=1'); time.sleep(600)"


def test_specs_are_those_that_lie_there(bench: Bench) -> None:
    first, second = bench.install("first", SERVES), bench.install("second", SERVES)
    assert bench.units.specs() == {"first": first, "second": second}
    assert bench.units.specs(["second", "third"]) == {"second": second}
    Path(bench.paths.unit("first")).write_text('{"half":')
    assert bench.units.specs() == {"second": second}


def test_a_log_is_read_in_parts(bench: Bench) -> None:
    bench.install("talks", SERVES)
    nothing = bench.units.log_since("talks", lines=5)
    assert nothing.text == ""
    bench.units.start("talks")
    bench.until("talks", lambda s: s.state == "active")
    assert bench.units.log_since("talks", nothing.cursor).text.endswith("one\ntwo\nthree\n")
    last = bench.units.log_since("talks", lines=2)
    assert last.text == "two\nthree\n"
    with open(bench.paths.log("talks"), "a") as log:
        log.write("four\nfi")
    part = bench.units.log_since("talks", last.cursor)
    assert part.text == "four\n"  # a line is shown once it is whole
    with open(bench.paths.log("talks"), "a") as log:
        log.write("ve\n")
    assert bench.units.log_since("talks", part.cursor).text == "five\n"


def test_who_started_it_and_when(bench: Bench) -> None:
    bench.install("talks", SERVES)
    bench.units.start("talks")
    first = bench.until("talks", lambda s: s.state == "active")
    assert first.started_by == "pdctl" and first.wanted
    assert first.started_at is not None and first.since is not None and first.started_at <= first.since
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    second = bench.until("talks", lambda s: s.state == "active" and s.pid != first.pid)
    assert second.started_by == "supervisor"
    assert second.started_at is not None and second.started_at > first.started_at
    bench.units.stop("talks")
    stopped = bench.units.status(["talks"])["talks"]
    assert (stopped.started_by, stopped.started_at, stopped.wanted) == ("", None, False)
