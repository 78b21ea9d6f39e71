"""A saved bundle is judged as the live fleet was."""

from __future__ import annotations

import json
from pathlib import Path

from pdctl import contracts
from pdctl.bundle.documents import Documents, save
from pdctl.diagnose.report import Report, document
from pdctl.flows.diagnose import judge_bundle


def same_from_a_bundle(report: Report, documents: Documents, folder: Path) -> None:
    """The bundle keeps its contracts and no secret, and is judged as the live fleet was."""
    for name in ("manifest", "fleet"):
        page = json.loads(documents.texts[f"{name}.json"])
        assert contracts.faults(f"bundle_{name}", page) == []
    token = (folder / ".pdctl" / "token").read_text().strip()
    assert not [path for path, text in documents.texts.items() if token in text]
    save(documents.texts, folder / "bundle.tar.gz", report.facts.at)
    saved = document(judge_bundle(folder / "bundle.tar.gz"))
    live = document(report)
    assert {**saved, "seconds": 0} == {**live, "seconds": 0}
