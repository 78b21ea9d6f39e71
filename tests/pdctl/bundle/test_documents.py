"""Archives that are none: a sentence each."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from pdctl.bundle.documents import load
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
