"""The operator's hooks: told by their environment, able to stop a deploy before anything is changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdctl.errors import ConfigError, PdctlError
from tests.pdctl.flows.conftest import Bench

SAYS = """#!/bin/sh
echo "$0 $PDCTL_FLEET $PDCTL_HOSTS $PDCTL_CELL $PDCTL_RESULT" >> {log}
[ -z "$PDCTL_CHANGES" ] || cp "$PDCTL_CHANGES" {changes}
{more}
"""


def hook(bench: Bench, name: str, more: str = "", mode: int = 0o755) -> None:
    path = bench.folder / ".pdctl" / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(SAYS.format(log=bench.folder / "said", changes=bench.folder / "changes", more=more))
    path.chmod(mode)


def said(bench: Bench) -> list[list[str]]:
    lines = (bench.folder / "said").read_text().splitlines()
    return [[Path(line.split()[0]).name, *line.split()[1:]] for line in lines]


def test_hooks_stand_around_what_they_are_named_for(bench: Bench) -> None:
    bench.deploy()
    for name in ("pre-deploy", "post-deploy", "pre-co-restart", "post-co-restart"):
        hook(bench, name)
    bench.deploy()
    assert not (bench.folder / "said").exists(), "nothing was changed"
    bench.edit('role = "decode"', 'role = "decode"\npages = 64')
    bench.deploy()
    fleet = str(bench.path)
    assert said(bench) == [
        ["pre-deploy", fleet, "local"],
        ["pre-co-restart", fleet, "local", "a"],
        ["post-co-restart", fleet, "local", "a", "done"],
        ["post-deploy", fleet, "local", "done"],
    ]
    changes = json.loads((bench.folder / "changes").read_text())
    assert "co-restart/a" in [step["id"] for step in changes]


def test_a_hook_before_stops_and_what_it_said_is_told(bench: Bench) -> None:
    hook(bench, "pre-deploy", "echo not on a Friday; exit 4")
    with pytest.raises(PdctlError) as caught:
        bench.deploy()
    assert caught.value.message == "The hook pre-deploy ended with exit code 4."
    assert "pre-deploy| not on a Friday" in caught.value.details
    assert not bench.root().exists()


@pytest.mark.parametrize("name", ["pre-deploy", "post-co-restart"])
def test_a_hook_that_cannot_be_run_is_a_sentence_before_anything_is_done(bench: Bench, name: str) -> None:
    hook(bench, name, mode=0o644)
    (said,) = bench.plan().notes
    assert f"hooks/{name} is not executable" in said and "chmod +x" in said, "the plan says it first"
    with pytest.raises(ConfigError, match="is not executable"):
        bench.deploy()
    assert not bench.root().exists()


@pytest.mark.parametrize("kind", ["gone", "folder", "no interpreter"])
def test_what_the_kernel_could_not_start_is_said_by_the_plan(bench: Bench, kind: str) -> None:
    path = bench.folder / ".pdctl" / "hooks" / "pre-deploy"
    path.parent.mkdir(parents=True)
    if kind == "gone":
        path.symlink_to("../away")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text("exit 0\n")
        path.chmod(0o755)
    (said,) = bench.plan().notes
    assert str(path) in said and ("leads to no file" in said or "does not begin with #!" in said)
    with pytest.raises(ConfigError):
        bench.deploy()
    assert not bench.root().exists()


def test_a_file_that_was_meant_for_a_hook_is_told_of(bench: Bench) -> None:
    for name in ("pre-deploy.sh", "post_deploy", "pre-restart", "lib.sh", "pre-deploy.bak", "notes", ".keep"):
        hook(bench, name)
    said = [note.partition(" ")[0].rpartition("/")[2] for note in bench.plan().notes]
    assert said == ["post_deploy", "pre-deploy.sh", "pre-restart"]
    assert "is never run: hooks are called pre-deploy, post-deploy" in bench.plan().notes[0]


def test_a_hook_behind_that_fails_is_told_and_undoes_nothing(bench: Bench) -> None:
    hook(bench, "post-deploy", "exit 1")
    outcome = bench.apply(bench.plan())
    assert outcome.notes == ["The hook post-deploy ended with exit code 1."]
    assert set(bench.serving()) == {"prefill-0", "decode-0", "router"}


def test_a_hook_that_hangs_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    hook(bench, "pre-deploy", "sleep 600")
    monkeypatch.setattr("pdctl.flows.deploy.hooks.DEADLINE", 0.5)
    with pytest.raises(PdctlError, match=r"The hook pre-deploy did not end in 0\.5 s"):
        bench.deploy()
