"""Row 16: a decode that does not match its prefill is refused by the name of what differs, and only it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.e2e.stack import bootstrap_port, stack
from tests.faults.bed import QUICK, Bed
from tests.faults.cell import measured
from tests.faults.load import wait


def another_model(folder: Path, model: Path) -> Path:
    """The same weights with another rope_theta: nothing but the digest tells them apart."""
    folder.mkdir()
    for file in model.iterdir():
        if file.name != "config.json" and not file.name.startswith("."):
            (folder / file.name).symlink_to(file)
    config = json.loads((model / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_theta": 12345.0}))
    return folder


@pytest.mark.parametrize(
    "field",
    [
        "page_size",
        pytest.param("dtype", marks=pytest.mark.slow),
        pytest.param("model", marks=pytest.mark.slow),
    ],
)
def test_a_mismatch_is_refused_by_name(
    bed: Bed, field: str, tmp_path: Path, smollm: Path, record: Path | None
) -> None:
    bed.heal()
    options = {"page_size": {"page_size": 24}, "dtype": {"dtype": "bfloat16"}}.get(field, {})
    model = another_model(tmp_path / "other", smollm) if field == "model" else smollm
    with (
        measured(16, f"decode with another {field}", "decode", record) as result,
        stack(tmp_path, model) as made,
    ):
        (tmp_path / "token").write_text(bed.stack.token)
        peer = ("--peer", f"127.0.0.1:{bootstrap_port(bed['prefill-0'])}")
        odd = made.engine("decode-odd", "decode", env=QUICK, flags=peer, **options)

        def refusal() -> str:
            assert odd.popen is not None and odd.popen.poll() is None, odd.tail()
            return next((str(p["error"]) for p in answering() if p["error"]), "")

        def answering() -> list[dict[str, object]]:
            try:
                return list(odd.state()["peers"])
            except OSError:
                return []
            except Exception as error:  # httpx: it does not listen yet
                assert "onnect" in str(error) or "imed out" in str(error), error
                return []

        began = time.monotonic()
        said = str(wait(refusal, 120.0, "the refusal", every=0.2))
        result.detect_s, result.detect_by = time.monotonic() - began, "decode's own state, from its start on"
        if field in said:
            result.evidence = said[:120]
        assert not odd.ready(), "it would take requests"
        assert field in str(odd.state()["not_ready"])
        assert bed.answers() and bed.one_life_each(), "the pair that matches was disturbed"
        wait(bed.clean, 20.0, "every page to be free")
        result.requests, result.held = 1, bed.held()
