"""The page of a verdict: whole, self-contained, safe against what logs hold, and drawn by a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pdctl.flows.diagnose import judge_bundle
from pdctl.render.diagnose import lines
from pdctl.render.html.depth import steps
from pdctl.render.html.page import page
from tests.cases.case import ROOT

A1 = ROOT / "A" / "A1"


def test_it_holds_verdict_evidence_and_remedy_and_loads_nothing() -> None:
    report = judge_bundle(A1)
    text = page(report)
    leader = report.verdict.findings[0].finding
    for part in (leader.code, leader.title, leader.remedy, "Engines and router", "<svg"):
        assert part in text
    assert not re.search(r"""(src|href)\s*=|@import|url\(|<script""", text)


def test_what_a_log_says_is_text(tmp_path: Path) -> None:
    shutil.copytree(A1, tmp_path / "b")
    log = tmp_path / "b" / "prefill-0.log"
    log.write_text(
        log.read_text().replace(
            "Prefill bootstrap failed", "<img src=x onerror=alert(1)> Prefill bootstrap failed"
        )
    )
    text = page(judge_bundle(tmp_path / "b"))
    assert "<img" not in text and "&lt;img" in text


BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)


@pytest.mark.skipif(not BROWSER, reason="no browser is installed: `make browser` installs one where it can")
def test_a_browser_draws_it(tmp_path: Path) -> None:
    """The document as the browser understood it, and a picture that is not blank; narrow as a phone too."""
    file = tmp_path / "page.html"
    file.write_text(page(judge_bundle(A1)))
    base = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    seen = subprocess.run([*base, "--dump-dom", f"file://{file}"], capture_output=True, text=True, timeout=60)
    assert "one side restarted alone" in seen.stdout and seen.stdout.count("<article") >= 2
    for width in (1100, 390):
        shot = tmp_path / f"{width}.png"
        subprocess.run(
            [*base, f"--screenshot={shot}", f"--window-size={width},1200", f"file://{file}"],
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert shot.stat().st_size > 20_000


def test_it_draws_how_deep_queues_were() -> None:
    text = page(judge_bundle(ROOT / "healthy" / "recorded-busy"))
    assert "Queue depth" in text and "router: requests" in text and "prefill-0: inflight" in text
    assert "<td>bundled</td><td>0.1.0</td>" in text, "an engine's version is its own word"


def test_the_depth_of_a_queue_counts_who_was_in_it() -> None:
    inside = [(5.0, 20.0), (12.0, 14.0), (13.0, 30.0)]
    assert steps(inside, 10.0, 30.0) == [
        (10.0, 1), (12.0, 2), (13.0, 3), (14.0, 2), (20.0, 1), (30.0, 1),
    ]  # fmt: skip
    assert steps([], 0.0, 1.0) == [(0.0, 0), (1.0, 0)]


def test_what_was_not_read_is_on_it(tmp_path: Path) -> None:
    shutil.copytree(A1, tmp_path / "b")
    (tmp_path / "b" / "router.log.zst").write_bytes(b"(\xb5/\xfd")
    report = judge_bundle(tmp_path / "b")
    assert "document router.log.zst was not read: packed as zst" in page(report)
    assert any("router.log.zst (packed as zst" in line for _, line in lines(report))
