"""A connection that ends in the midst of the login says nothing of the key: it is tried again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from pdctl.errors import UnreachableError
from pdctl.transport.ssh.config import Target
from pdctl.transport.ssh.connect import connect

KEY = paramiko.ECDSAKey.generate()


class Door(paramiko.ServerInterface):
    def __init__(self, sshd: Sshd) -> None:
        self.sshd = sshd

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.sshd.asked += 1
        if self.sshd.asked <= self.sshd.drops:
            self.sshd.ways[-1].close()
        return paramiko.common.AUTH_SUCCESSFUL if self.sshd.opens else paramiko.common.AUTH_FAILED


class Sshd:
    """Closes the connection on the first `drops` keys that it is shown; from then on it answers."""

    def __init__(self, drops: int, opens: bool = True) -> None:
        self.drops, self.opens, self.asked = drops, opens, 0
        self.ways: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                way, _ = self.listener.accept()
            except OSError:
                return
            self.ways.append(way)
            transport = paramiko.Transport(way)
            transport.add_server_key(KEY)
            transport.start_server(event=threading.Event(), server=Door(self))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setattr("pdctl.transport.ssh.connect._DROPPED_MOST", 0.6)
    KEY.write_private_key_file(str(tmp_path / "key"))
    yield tmp_path


def login(sshd: Sshd, home: Path) -> None:
    port = sshd.listener.getsockname()[1]
    file = home / "known"
    file.write_text(f"[h1]:{port} {KEY.get_name()} {KEY.get_base64()}\n")
    target = Target("h1", "127.0.0.1", port, "ops", f"[h1]:{port}", (str(home / "key"),), True, (str(file),))
    try:
        connect(target, "h1", 20.0).close()
    finally:
        sshd.listener.close()


def test_a_login_that_broke_off_is_tried_again(home: Path) -> None:
    sshd = Sshd(drops=2)
    login(sshd, home)
    assert sshd.asked >= 3


@pytest.mark.parametrize(
    ("drops", "code", "said"),
    [
        (10**6, "ssh_dropped", "closed the connection before the login: no answer to the key came."),
        (0, "auth_failed", "accepts none of 1 keys for the user ops"),
    ],
)
def test_a_broken_login_is_no_refused_one(home: Path, drops: int, code: str, said: str) -> None:
    with pytest.raises(UnreachableError) as caught:
        login(Sshd(drops, opens=False), home)
    assert caught.value.code == code and said in caught.value.message
