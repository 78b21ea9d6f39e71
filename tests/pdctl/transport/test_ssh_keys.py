"""Which keys a login is tried with, in which order, and how often somebody is asked."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.transport.ssh import ask, keys
from pdctl.transport.ssh.config import Target
from pdctl.transport.ssh.keys import Tried, candidates

TARGET = Target("h", "h", 22, "ops", "h")
KINDS = {
    "ed25519": ("-t", "ed25519"),
    "ecdsa": ("-t", "ecdsa", "-b", "384"),
    "rsa": ("-t", "rsa", "-b", "2048"),
    "rsa in PEM": ("-t", "rsa", "-b", "2048", "-m", "PEM"),
    "ecdsa in PEM": ("-t", "ecdsa", "-m", "PEM"),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setattr(keys, "_unlocked", keys._Unlocked())
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def make(path: Path, passphrase: str = "", kind: str = "ed25519") -> str:
    words = ("ssh-keygen", "-q", *KINDS[kind], "-N", passphrase, "-f", str(path))
    subprocess.run(words, check=True)
    return path.with_name(f"{path.name}.pub").read_text().split()[1]


def offered(target: Target, tried: Tried) -> list[str]:
    return [key.get_base64() for key in candidates(target, tried)]


def person(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Somebody at the terminal who gives these answers; the files that were asked about."""
    asked: list[str] = []
    left = list(answers)

    def answer(file: str) -> str:
        asked.append(file)
        return left.pop(0)

    monkeypatch.setattr(ask, "possible", lambda: True)
    monkeypatch.setattr(ask, "passphrase", answer)
    return asked


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_is_read_open_and_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    plain, locked = make(tmp_path / "plain", "", kind), make(tmp_path / "locked", "pass wörd", kind)
    asked = person(monkeypatch, "pass wörd")
    target = replace(TARGET, identities=(str(tmp_path / "locked"), str(tmp_path / "plain")))
    assert offered(target, Tried()) == [plain, locked]
    assert asked == [str(tmp_path / "locked")]


def test_nobody_is_asked_twice_and_wrong_answers_may_be_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = make(tmp_path / "locked", "right")
    asked = person(monkeypatch, "wrong", "right")
    target = replace(TARGET, identities=(str(tmp_path / "locked"),))
    assert offered(target, Tried()) == offered(target, Tried()) == [public]
    assert len(asked) == 2


def test_three_wrong_answers_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "locked", "right")
    asked = person(monkeypatch, "a", "b", "c")
    target, tried = replace(TARGET, identities=(str(tmp_path / "locked"),)), Tried()
    assert offered(target, tried) == offered(target, tried) == []
    assert len(asked) == 3 and tried.locked[0] == str(tmp_path / "locked")


def test_default_files_are_for_those_who_name_none(home: Path) -> None:
    ed25519, rsa = make(home / ".ssh" / "id_ed25519"), make(home / ".ssh" / "id_rsa", kind="rsa")
    named = make(home / "named")
    tried = Tried()
    assert offered(TARGET, tried) == [ed25519, rsa]
    assert tried.notes == [f"{home}/.ssh/id_ed25519", f"{home}/.ssh/id_rsa"]
    assert offered(replace(TARGET, identities=(str(home / "named"),)), Tried()) == [named]


def test_files_that_are_no_keys_are_noted(home: Path) -> None:
    (home / "text").write_text("not a key")
    tried = Tried()
    target = replace(TARGET, identities=(str(home / "absent"), str(home / "text"), str(home)))
    assert offered(target, tried) == []
    assert tried.notes == [
        f"{home}/absent: there is no such file",
        f"{home}/text is not a private key",
        f"{home} is a folder",
    ]
    assert (tried.offered, tried.locked) == (0, [])


def test_a_private_key_that_is_damaged_is_said_to_be(home: Path) -> None:
    make(home / "key")
    (home / "key").write_text((home / "key").read_text()[:120])
    (home / "key.pub").unlink()
    tried = Tried()
    assert offered(replace(TARGET, identities=(str(home / "key"),)), tried) == []
    assert tried.notes == [f"{home}/key is damaged, or of a kind that works through an agent only"]
