"""A watchdog that is not proved says by which check, and why where that is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.__main__ import main
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.init import Wanted, init_fleet
from pdctl.flows.tune.proof import Check, Proof, why_not
from pdctl.flows.tune.report import TuneReport
from pdctl.render.tune import show
from tests.pdctl.models import model_folder


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    init_fleet(tmp_path / "fleet.toml", Wanted("test", str(model_folder(tmp_path / "model"))))
    text = (tmp_path / "fleet.toml").read_text().replace("drill = false", "drill = true")
    text = text.replace('role = "prefill"\n', 'role = "prefill"\nlegacy_bootstrap = true\n')
    (tmp_path / "fleet.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return Context(load_fleet(tmp_path / "fleet.toml"))


def test_a_prefill_in_legacy_mode_says_why_clients_wait(
    ctx: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ctx.fleet.path.read_text().splitlines()
    checks = (Check("fired in time", True, "after 3 s"), Check("client told in time", False, "24.7 s after"))
    prefill = ctx.fleet.engine("prefill-0")
    why = why_not(ctx, prefill, {"legacy_bootstrap": True}, checks)
    show(TuneReport("drill", 30.0, proofs=[Proof("prefill-0", "decode-0", 3.0, 3.0, "id", checks, why=why)]))
    said = capsys.readouterr().out
    assert "Watchdog of prefill-0 (prefill-0 -> decode-0, 3 s): NOT proved: client told in time\n" in said
    at = f"fleet.toml:{rows.index('legacy_bootstrap = true') + 1}"
    assert (
        f"until decode's own PD_DECODE_TRANSFER_TIMEOUT; take legacy_bootstrap out at {at}, `pdctl deploy`"
        in said
    )
    assert why_not(ctx, prefill, {"legacy_bootstrap": False}, checks) == ""
    assert why_not(ctx, prefill, {"legacy_bootstrap": True}, checks[:1]) == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--measure-only", "--apply"), "--measure-only neither verifies nor applies."),
        (("--verify", "--restarts", "2"), "--verify is for the value in force"),
        (("--one-sided",), "no restart is asked for.\nAdd --restarts N."),
    ],
)
def test_options_that_contradict_one_another_are_a_sentence(
    ctx: Context, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--fleet", str(ctx.fleet.path), "tune-timeout", *words]) == Exit.USAGE
    assert said in capsys.readouterr().err
