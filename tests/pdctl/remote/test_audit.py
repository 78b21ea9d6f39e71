"""Each host keeps who changed what on it; that record is only ever added to, and hides nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pdctl.errors import PdctlError, UnreachableError
from pdctl.fleet.model import Host
from pdctl.remote import audit_tool
from pdctl.remote.audit import Audit, read_audit
from pdctl.remote.journal import Journal, Links
from pdctl.remote.journal_read import read_run
from pdctl.transport.base import Transport
from pdctl.transport.local import LocalTransport
from tests.pdctl.remote.conftest import here

WHO = {"by": "ann", "from": "laptop", "run": "r1", "verb": "deploy"}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return here(tmp_path / "root")


def opened(name: str) -> Transport:
    return LocalTransport(name)


def audit(host: Host, said: list[str]) -> Audit:
    return Audit({"ctl": host}, opened, WHO, said.append)


def lines(host: Host) -> list[dict[str, str]]:
    found, bad = read_audit(opened("ctl"), host, 100)
    assert bad == 0
    return found


def test_steps_that_change_a_host_are_in_its_record_looks_are_not(host: Host, tmp_path: Path) -> None:
    said: list[str] = []
    record = audit(host, said)
    with Journal(tmp_path / "journal.db", "deploy", links=Links(audit=record)) as journal:
        with journal.doing("ctl/release", "ctl", "install a release"), journal.doing("part", "ctl", "part"):
            pass
        with journal.doing("canary", "ctl", "ask for something", changes=False):
            pass
        with journal.doing("co", "fleet", "the whole fleet has no record"):
            pass
        with pytest.raises(PdctlError), journal.doing("ctl/start", "ctl", "start it"):
            raise PdctlError("x", "No disk.")
    record.close()
    assert said == []
    found = lines(host)
    assert [(r["step"], r["what"], r["result"]) for r in found] == [
        ("ctl/release", "install a release", "done"),
        ("ctl/start", "start it", "failed: No disk."),
    ]
    assert all({k: r[k] for k in WHO} == WHO and r["at"].endswith("Z") for r in found)
    path = Path(host.root) / "audit.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_record_that_cannot_be_written_is_said_and_hides_nothing(host: Host, tmp_path: Path) -> None:
    Path(host.root).parent.joinpath("root").write_text("a file is in the way")
    said: list[str] = []
    record = audit(host, said)
    with Journal(tmp_path / "journal.db", "deploy", links=Links(audit=record)) as journal:
        for name in ("a", "b"):
            with journal.doing(name, "ctl", name):
                pass
    record.close()
    assert len(said) == 1 and said[0].startswith("the audit record on ctl is not written:")
    assert [s.state for s in read_run(tmp_path / "journal.db", journal.id).steps] == ["done", "done"]


def test_a_host_that_cannot_be_reached_is_not_asked_for_its_record_too(host: Host, tmp_path: Path) -> None:
    said: list[str] = []
    record = audit(host, said)
    with (
        pytest.raises(UnreachableError),
        Journal(tmp_path / "journal.db", "deploy", links=Links(audit=record)) as journal,
        journal.doing("a", "ctl", "start"),
    ):
        raise UnreachableError("gone", "No way there.")
    record.close()
    assert (said, lines(host)) == ([], [])


def test_a_torn_line_does_not_swallow_the_next(host: Host) -> None:
    Path(host.root).mkdir()
    path = Path(host.root) / "audit.jsonl"
    path.write_text('{"what": "whole"}\n{"what": "cut o')
    record = audit(host, [])
    record.write("ctl", "s", "next", "done")
    record.close()
    found, bad = read_audit(opened("ctl"), host, 100)
    assert ([r["what"] for r in found], bad) == (["whole", "next"], 1)
    assert path.read_text().startswith('{"what": "whole"}\n{"what": "cut o\n{"at"')


def test_the_last_lines_are_read(host: Host) -> None:
    record = audit(host, [])
    for n in range(30):
        record.write("ctl", f"s{n}", "w", "done")
    record.close()
    found, _ = read_audit(opened("ctl"), host, 5)
    assert [r["step"] for r in found] == [f"s{n}" for n in range(25, 30)]
    assert read_audit(opened("ctl"), here(Path(host.root) / "other"), 5) == ([], 0)


def test_a_record_that_has_grown_is_put_aside_and_read_on_and_the_oldest_goes(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the host runs it: the source on stdin."""
    monkeypatch.setattr(audit_tool, "LIMIT", 2000)
    for n in range(120):
        audit_tool.append({"root": host.root, "lines": [{"n": n, "what": "x" * 100}]})
    files = sorted(Path(host.root).iterdir())
    assert [f.name for f in files] == ["audit.jsonl", *(f"audit.jsonl.{n}" for n in range(1, 4))]
    assert all(f.stat().st_size < 2300 and f.stat().st_mode & 0o777 == 0o600 for f in files)
    found = [int(r["n"]) for r in lines(host)]
    assert len(found) > 30 and found == list(range(120 - len(found), 120)), "across files, none missing"
    assert [int(r["n"]) for r in read_audit(opened("ctl"), host, 25)[0]] == list(range(95, 120))


def test_many_writers_at_once_keep_every_line_whole(host: Host) -> None:
    ask = {"root": host.root, "lines": [{"what": "x" * 3000, "n": n} for n in range(40)]}
    argv = [sys.executable, audit_tool.__file__ or "", "append", json.dumps(ask)]
    writers = [subprocess.Popen(argv, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [w.wait(60) for w in writers] == [0] * 4
    found, bad = read_audit(opened("ctl"), host, 1000)
    assert (len(found), bad) == (160, 0)


def test_a_slow_host_does_not_hold_up_the_run(host: Host) -> None:
    """The line is written beside the run; its end waits for it."""

    answer = threading.Event()

    class Slow(LocalTransport):
        def run(self, *args, **more):
            assert answer.wait(60)
            return super().run(*args, **more)

    record = Audit({"ctl": host}, Slow, WHO, lambda text: None)
    for n in range(3):
        record.write("ctl", f"s{n}", "what", "done")
    assert lines(host) == [], "nothing can have been written before the host answers"
    answer.set()
    record.close()
    assert [r["step"] for r in lines(host)] == ["s0", "s1", "s2"]
