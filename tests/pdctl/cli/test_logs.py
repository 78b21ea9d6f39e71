"""pdctl logs, where there is nothing to show."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.__main__ import main
from pdctl.exits import Exit


@pytest.mark.parametrize(("words", "who"), [([], "demo"), (["prefill-0"], "prefill-0")])
def test_a_fleet_that_was_never_started_has_no_log_and_is_told_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    who: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--local"]) == Exit.OK
    capsys.readouterr()
    assert main(["logs", *words]) == Exit.OK
    assert capsys.readouterr() == ("", f"{who} has no log: nothing of it was started yet.\n")
