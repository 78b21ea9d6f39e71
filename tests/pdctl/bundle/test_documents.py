"""What a bundle's files may be: archives that are none, packed logs, other encodings, what is no text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
from pathlib import Path

import pytest

from pdctl.bundle.documents import load
from pdctl.bundle.layout import place
from pdctl.bundle.read import facts_of
from pdctl.errors import ConfigError


@pytest.mark.parametrize("length", [0, 1, 20, 60])
def test_an_archive_cut_short_is_said_to_be_no_bundle(tmp_path: Path, length: int) -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        info = tarfile.TarInfo("b/engine.log")
        info.size = 4000
        archive.addfile(info, io.BytesIO(bytes(i * i % 251 for i in range(4000))))
    path = tmp_path / "cut.tar.gz"
    path.write_bytes(whole.getvalue()[:length])
    with pytest.raises(ConfigError, match="is no bundle"):
        load(path)


LOG = "2026-08-20 10:00:00 one\n2026-08-20 10:00:01 zwölf — two\n"
PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_log_is_read_in_a_folder_and_in_an_archive(tmp_path: Path, ending: str) -> None:
    packed = PACKERS[ending](LOG.encode())
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / f"decode-0.log{ending}").write_bytes(packed)
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        archive.add(folder, "bundle")
    for found in (load(folder), load(tmp_path / "b.tar.gz")):
        (path,) = found.texts
        assert found.texts[path] == LOG and place(path.removeprefix("bundle/")) == place("decode-0.log")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("most", [1 << 20, 64])
def test_a_log_is_read_in_every_encoding_also_its_end_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, most: int
) -> None:
    monkeypatch.setattr("pdctl.bundle.documents.FILE_MAX", most)
    for name, data in (("a.log", LOG.encode(encoding)), ("b.log.gz", gzip.compress(LOG.encode(encoding)))):
        (tmp_path / name).write_bytes(data)
    found = load(tmp_path)
    for name, text in found.texts.items():
        assert LOG.endswith(text.lstrip("\ufffd")) and len(text) >= 16, (name, text)
        assert (name in found.cut) == (len(LOG.encode(encoding)) > most), name


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "decode-0.log").write_text(LOG)
    (tmp_path / "prefill-0.log.zst").write_bytes(b"(\xb5/\xfd")
    (tmp_path / "prefill-1.log.gz").write_bytes(gzip.compress(LOG.encode())[:20])
    (tmp_path / "decode-1.log").write_bytes(bytes(i * i % 251 for i in range(5000)))
    (tmp_path / "core.12").write_text("text of an unknown kind")
    (tmp_path / "shot.png").write_bytes(b"\x89PNG\x00\x00\xff")
    facts = facts_of(load(tmp_path), 1_787_220_000.0)
    assert {name: why.split(":")[0] for name, why in facts.unread} == {
        "prefill-0.log.zst": "packed as zst; unpack it",
        "prefill-1.log.gz": "cannot be unpacked",
        "decode-1.log": "is no text",
        "core.12": "its name does not say what it is",
    }
    assert [e.name for e in facts.engines] == ["decode-0"]


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdctl.bundle.text.UNPACKED_MAX", 1 << 20)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"x" * (3 << 20)))
    (tmp_path / "b.log").write_text(LOG)
    assert "more than 1 MiB" in load(tmp_path).unread["a.log.gz"]


def test_a_rotated_log_is_one_log_from_its_oldest_file_on(tmp_path: Path) -> None:
    start = "[2026-08-20 10:0{}:00] The server is fired up and ready to roll!\n"
    (tmp_path / "decode-0.log").write_text(start.format(3))
    (tmp_path / "decode-0.log.1").write_text(start.format(2))
    (tmp_path / "decode-0.log.2.gz").write_bytes(gzip.compress(start.format(1).encode()))
    (engine,) = facts_of(load(tmp_path), 1_787_220_000.0).engines
    ready = list(engine.traces.of("net.ready"))
    assert [e.order for e in ready] == sorted({e.order for e in ready}) and len(ready) == 3
    assert [e.where.partition(":")[0] for e in ready] == [
        "decode-0.log.2.gz",
        "decode-0.log.1",
        "decode-0.log",
    ]


def test_an_archive_cut_inside_of_a_document_is_said_to_be_cut(tmp_path: Path) -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        info = tarfile.TarInfo("b/decode-0.log")
        info.size = 400_000
        archive.addfile(info, io.BytesIO(random.Random(1).randbytes(400_000)))
    path = tmp_path / "cut.tar.gz"
    path.write_bytes(whole.getvalue()[:200_000])
    with pytest.raises(ConfigError, match="cannot be read to its end"):
        load(path)


def test_json_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "decode-0.json").write_text('{"a": [1,2')
    (tmp_path / "prefill-0.json").write_text('{"a": [1, 2]}')
    ((name, why),) = facts_of(load(tmp_path), 1_787_220_000.0).unread
    assert name == "decode-0.json" and why.startswith("is no JSON: ")


def test_without_its_time_a_bundle_is_of_the_newest_line_of_its_logs(tmp_path: Path) -> None:
    (tmp_path / "decode-0.log").write_text(LOG)
    (tmp_path / "prefill-0.log").write_text("no stamp\n")
    assert facts_of(load(tmp_path), 1_797_220_000.0).at == 1_787_220_001.0
    (tmp_path / "decode-0.log").write_text("none here either\n")
    assert facts_of(load(tmp_path), 1_797_220_000.0).at == 1_797_220_000.0


def test_a_bundle_that_shows_nobody_is_nothing_to_judge(tmp_path: Path) -> None:
    (tmp_path / "bundle.toml").write_text('source = "x"\n')
    with pytest.raises(ConfigError, match="nothing to judge"):
        facts_of(load(tmp_path), 1_787_220_000.0)


def test_what_is_hidden_beside_the_documents_is_no_evidence(tmp_path: Path) -> None:
    """A fleet's own folder has the engine's sources in .pdctl, a checkout .git, a Mac's archive ._ files."""
    folder = tmp_path / "bundle"
    for name in ("decode-0.log", "._decode-0.log", ".git/packed.log", "hosts/.pdctl/trees/kernel.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(LOG)
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        archive.add(folder, ".")
    assert set(load(folder).texts) == set(load(tmp_path / "b.tar.gz").texts) == {"decode-0.log"}
