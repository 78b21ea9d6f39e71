"""known_hosts: read as OpenSSH reads it, and what is said when a key cannot be trusted."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from pdctl.errors import UnreachableError
from pdctl.transport.ssh import ask, known
from pdctl.transport.ssh.config import Target

KEY = paramiko.ECDSAKey.generate()
OTHER = paramiko.ECDSAKey.generate()
KIND = KEY.get_name()
NAME = "[gpu1.example]:2222"


@pytest.fixture
def target(tmp_path: Path) -> Target:
    file = str(tmp_path / "sub" / "known_hosts")
    return Target("gpu1", "gpu1.example", 2222, "ops", NAME, known_files=(file, "/no/such/file"))


def write(target: Target, *lines: str) -> None:
    file = Path(target.known_files[0])
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def line(names: str, key: paramiko.PKey = KEY) -> str:
    return f"{names} {key.get_name()} {key.get_base64()} a comment"


def check(target: Target, key: paramiko.PKey = KEY) -> None:
    known.check(target, key.get_name(), key.asbytes(), "gpu1")


def refused(target: Target, key: paramiko.PKey = KEY) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        check(target, key)
    return caught.value


@pytest.mark.parametrize("names", [NAME, f"other,{NAME}", "[*.example]:2222", "[gpu?.EXAMPLE]:2222"])
def test_a_line_that_names_the_host_is_enough(target: Target, names: str) -> None:
    write(target, "# a comment", "", "broken", line("else", OTHER), line(names))
    check(target)
    assert [entry.line for entry in known.entries(target)] == [5]


@pytest.mark.parametrize("names", ["gpu1.example", "[gpu1.example]:22", "g", f"!{NAME},[*]:2222", "[*]:22"])
def test_a_line_for_another_name_or_port_is_not(target: Target, names: str) -> None:
    write(target, line(names))
    assert refused(target).code == "host_key_unknown"


def test_a_hashed_line_counts_as_ssh_keygen_made_it(target: Target) -> None:
    write(target, line("else", OTHER), line(NAME))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", target.known_files[0]], check=True, capture_output=True)
    assert NAME not in Path(target.known_files[0]).read_text()
    check(target)
    assert refused(replace(target, known_name="gpu1.example")).code == "host_key_unknown"


def test_an_unknown_key_is_shown_with_the_command_that_adds_it(target: Target) -> None:
    error = refused(target)
    assert error.code == "host_key_unknown" and error.exit == 5
    assert known.fingerprint(KEY.asbytes()) in error.message
    command = error.hint.rpartition("add it: ")[2]
    Path(target.known_files[0]).parent.mkdir()
    subprocess.run(["sh", "-c", command], check=True)
    check(target)


def test_the_fingerprint_is_what_ssh_keygen_prints(target: Target) -> None:
    write(target, line(NAME))
    listed = subprocess.run(
        ["ssh-keygen", "-lf", target.known_files[0]], check=True, capture_output=True, text=True
    )
    assert known.fingerprint(KEY.asbytes()) == listed.stdout.split()[1]


def test_a_changed_key_stops_with_the_line_and_the_command(target: Target) -> None:
    write(target, "# first", line(NAME, OTHER))
    error = refused(target)
    assert error.code == "host_key_changed"
    assert f"{target.known_files[0]}:2" in error.message
    assert known.fingerprint(OTHER.asbytes()) in error.details[0]
    assert known.fingerprint(KEY.asbytes()) in error.details[1]
    subprocess.run(["sh", "-c", error.hint.partition("with: ")[2]], check=True, capture_output=True)
    assert refused(target).code == "host_key_unknown"


def test_a_changed_key_is_never_asked_about(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "possible", lambda: True)
    monkeypatch.setattr(ask, "confirm", lambda question: pytest.fail("asked"))
    write(target, line(NAME, OTHER))
    assert refused(target).code == "host_key_changed"


def test_a_second_key_of_the_same_kind_is_enough(target: Target) -> None:
    write(target, line(NAME, OTHER), line(NAME))
    check(target)


def test_a_revoked_key_is_refused_although_it_is_listed(target: Target) -> None:
    write(target, line(NAME), f"@revoked {line('*')}")
    assert refused(target).code == "host_key_revoked"


def test_a_certificate_authority_is_no_host_key(target: Target) -> None:
    write(target, f"@cert-authority {line('*')}")
    assert refused(target).code == "host_key_unknown"


def test_a_confirmed_key_is_written_down_and_not_asked_again(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ask, "possible", lambda: True)
    monkeypatch.setattr(ask, "confirm", lambda question: not asked.append(question))
    write(target, line("else", OTHER))
    file = Path(target.known_files[0])
    file.write_text(file.read_text().rstrip("\n"))
    check(target)
    check(target)
    assert len(asked) == 1 and known.fingerprint(KEY.asbytes()) in asked[0]
    wanted = f"{NAME} {KIND} {base64.b64encode(KEY.asbytes()).decode()}"
    assert file.read_text().splitlines() == [line("else", OTHER), wanted]


def test_a_key_that_is_not_confirmed_is_not_written_down(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "possible", lambda: True)
    monkeypatch.setattr(ask, "confirm", lambda question: False)
    assert refused(target).code == "host_key_unknown"
    assert not Path(target.known_files[0]).exists()
