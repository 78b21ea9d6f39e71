"""`pdctl load` as a process: lines, a live table, JSON, Ctrl-C, and a sentence for what cannot be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl import contracts
from pdctl.__main__ import main
from pdctl.exits import Exit
from tests.pdctl.flows.load.endpoint import Endpoint, endpoint
from tests.pdctl.terminal import Terminal

HANGS = '{"at": 0, "prompt": "HANGS", "max_tokens": 4}\n'


@pytest.fixture
def server() -> Iterator[Endpoint]:
    with endpoint(length=1024) as made:
        yield made


@pytest.fixture
def hangs(tmp_path: Path) -> str:
    path = tmp_path / "hangs.jsonl"
    path.write_text(HANGS * 2)
    return str(path)


def until(check: object, what: str) -> None:
    end = time.monotonic() + 30.0
    while not check():  # type: ignore[operator]
        assert time.monotonic() < end, f"waited 30 s: {what}"
        time.sleep(0.02)


def test_lines_name_what_hangs_and_the_exit_says_so(
    server: Endpoint, hangs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["load", "--url", server.url, "--trace", hangs, "--deadline", "0.5"]
    assert main(words) == Exit.FINDINGS
    said = capsys.readouterr()
    assert said.err.count(" hung for 0.5 s: the endpoint has no ledger") == 2
    assert "errors: hung 2" in said.out and "0 ok, 0 failed, 2 hung" in said.out
    assert main([*words, "--fail-on", "never"]) == Exit.OK


def test_json_is_one_document_of_its_schema(
    server: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOAD_KEY", "s3cret")
    record = tmp_path / "rec.jsonl"
    words = ["--json", "load", "--url", f"{server.url}/v1/", "--rounds", "2", "--key-env", "LOAD_KEY"]
    assert main([*words, "--record", str(record)]) == Exit.OK
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert contracts.faults("load", document) == [] and said.err == ""
    assert document["all"]["ok"] == 8 and document["shape"]["context"] == 1024
    assert {h["Authorization"] for h in server.headers} == {"Bearer s3cret"}
    assert "s3cret" not in said.out + record.read_text() and len(record.read_text().splitlines()) == 8
    assert main([*words, "--record", str(record)]) == Exit.USAGE
    assert "exists" in capsys.readouterr().out


def test_ctrl_c_ends_it_within_a_second_with_its_report_so_far(server: Endpoint, hangs: str) -> None:
    command = [sys.executable, "-m", "pdctl", "load", "--url", server.url, "--trace", hangs]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: len(server.asked) == 2, "both requests to be sent")
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        took = time.monotonic() - began
    finally:
        process.kill()
    assert process.returncode == Exit.INTERRUPTED and took < 3.0, err
    assert "2 rounds had not ended" in out and "-a1-r1 (agent 1, round 1), open for" in out
    assert "interrupted" in out and "Traceback" not in err and "never retrieved" not in err


def test_a_terminal_has_a_table_that_is_redrawn(server: Endpoint, hangs: str) -> None:
    terminal = Terminal()
    words = ["-m", "pdctl", "load", "--url", server.url, "--trace", hangs, "--deadline", "3"]
    process = terminal.run(*words)
    text = ""
    try:
        os.set_blocking(terminal.master, False)
        end = time.monotonic() + 60.0
        while process.poll() is None and time.monotonic() < end:
            try:
                text += os.read(terminal.master, 65536).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.02)
        try:
            text += os.read(terminal.master, 65536).decode(errors="replace")
        except OSError:
            pass
    finally:
        process.kill()
        terminal.close()
    assert process.wait(10) == Exit.FINDINGS
    assert "2 open, oldest" in text and "\x1b[" in text and "given up" in text
    assert "2 hung" in text.replace("\r", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--agents", "2", "--rate", "1"), "--agents and --rate do not go together."),
        (("--agents", "300"), "300 agents at once are more than the 256 allowed."),
        (("--fail-on", "hang"), "--fail-on hang is not known. Did you mean hung?"),
        (("--trace", "/nowhere.jsonl"), "/nowhere.jsonl: No such file"),
        (("--key-env", "NO_SUCH"), "--key-env NO_SUCH: there is no such variable"),
        (("--context", "64"), "A conversation may have 64 tokens"),
        (("--model", "other"), "has no model 'other'"),
    ],
)
def test_what_cannot_be_is_a_sentence(
    server: Endpoint, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["load", "--url", server.url, *words]) == Exit.USAGE
    assert said in " ".join(capsys.readouterr().err.split()) and not server.asked


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--url", "127.0.0.1:80"), Exit.USAGE, "--url 127.0.0.1:80 is no address."),
        (("--url", "http://127.0.0.1:99999"), Exit.USAGE, "is no address."),
        (("--url", "http://x\n.y"), Exit.USAGE, "is no address."),
        (("--url", "http://127.0.0.1:1"), Exit.UNREACHABLE, "http://127.0.0.1:1/v1/models cannot be reached"),
        (("--url", "http://127.0.0.1:1"), Exit.UNREACHABLE, "Is it up, and this its address?"),
        (("--model", "a"), Exit.USAGE, "--model is for --url."),
    ],
)
def test_an_endpoint_that_is_none_is_a_sentence(
    words: tuple[str, ...], code: Exit, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["load", *words]) == code
    assert said in capsys.readouterr().err
