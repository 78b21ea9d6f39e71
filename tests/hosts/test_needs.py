"""A machine that cannot boot hosts is told why, in a sentence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.hosts import needs


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(needs, "_killable", lambda: [Path("/")])
    monkeypatch.setattr(needs, "_can_mount", lambda: True)
    monkeypatch.setattr(shutil, "which", lambda program, path=None: f"/bin/{program}")


def test_who_is_not_root_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert needs.missing(tmp_path) == "test hosts need root: run the tests as root to include them."


def test_packages_that_are_missing_are_named(
    root: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    have = {"ssh-keygen", "ip", "nsenter", "nft"}
    monkeypatch.setattr(shutil, "which", lambda program, path=None: program if program in have else None)
    said = needs.missing(tmp_path)
    assert said.startswith("test hosts need systemd-container, debootstrap: run tests/hosts/setup.sh")


def test_a_machine_without_a_mirror_needs_one_until_the_image_is_there(
    root: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(needs, "debian_mirrors", list)
    monkeypatch.delenv("TESTHOSTS_MIRROR", raising=False)
    assert "set TESTHOSTS_MIRROR" in needs.missing(tmp_path)
    (tmp_path / "image-1").mkdir()
    assert needs.missing(tmp_path) == ""


def test_an_overlay_is_no_disk(root: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TESTHOSTS_MIRROR", "http://mirror.example/debian")
    monkeypatch.setattr(needs, "_kind", lambda folder: "overlay")
    assert "set TESTHOSTS_BASE" in needs.missing(tmp_path)
