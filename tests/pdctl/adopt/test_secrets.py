"""Secrets go into 0600 files and are shown nowhere."""

from __future__ import annotations

import stat

import pytest

from pdctl.__main__ import main
from pdctl.errors import ConfigError
from pdctl.fleet.profile import unit_secrets
from pdctl.fleet.secretfile import filled
from tests.pdctl.adopt.conftest import ENGINE

TOKEN, KEY, PASSWORD = "hf_abcdefghijklmnopqrstuvwx", "key-12345678-abcdef", "hunter2hunter2"
SCRIPT = f"""#!/bin/bash
export HF_TOKEN={TOKEN}
export https_proxy=http://me:{PASSWORD}@proxy:3128
export SGLANG_MAX_TOKENS=4096
curl -H "Authorization: Bearer {TOKEN}" http://x/ --api-key {KEY} || true
exec {ENGINE} --api-key {KEY} --tp 1
"""


def test_they_are_in_one_private_file_and_nowhere_else(bench) -> None:
    _, document = bench.script(SCRIPT)
    private = bench.out / ".pdctl" / "secrets" / "engine-0.env"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(private.parent.stat().st_mode) == 0o700
    for path in bench.out.rglob("*"):
        if path.is_file() and path != private:
            assert not any(s in path.read_text() for s in (TOKEN, KEY, PASSWORD)), path
    assert not any(s in str(document) for s in (TOKEN, KEY, PASSWORD))
    assert document["units"][0]["secrets"] == ["ARG_API_KEY", "HF_TOKEN", "https_proxy"]


def test_the_engine_gets_them_all_the_same(bench) -> None:
    bench.script(SCRIPT)
    fleet = bench.fleet()
    engine = fleet.engine("engine-0")
    values = {name: text for name, (text, _) in unit_secrets(fleet, engine).items()}
    assert filled(engine.spec.command or [], values) == [*ENGINE.split(), "--api-key", KEY, "--tp", "1"]
    assert bench.env("engine-0")["HF_TOKEN"] == TOKEN
    assert bench.env("engine-0")["SGLANG_MAX_TOKENS"] == "4096"


def test_text_for_people_masks_them_too(bench, capsys) -> None:
    script = bench.write("serve.sh", SCRIPT)
    main(["adopt", script, "--out", str(bench.out), "--lines"])
    shown = "".join(capsys.readouterr())
    assert "serve.sh:2" in shown
    assert not any(s in shown for s in (TOKEN, KEY, PASSWORD))


def test_a_secrets_file_that_others_may_read_is_refused(bench) -> None:
    bench.script(SCRIPT)
    (bench.out / ".pdctl" / "secrets" / "engine-0.env").chmod(0o644)
    with pytest.raises(ConfigError) as refused:
        bench.fleet()
    assert "chmod 600" in "\n".join(refused.value.details)
