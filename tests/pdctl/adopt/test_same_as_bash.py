"""What adoption says a script starts is what bash starts; where it cannot say, it says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings

from pdctl.adopt.notes import Grade, Unknown
from pdctl.adopt.shell.script import Followed, follow
from pdctl.adopt.shell.state import World
from pdctl.errors import ConfigError
from tests.pdctl.adopt import scripts
from tests.pdctl.adopt.bash import Start, base, make_stubs, run

SAID = (Grade.OPEN, Grade.MISSING)
RUNS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    make_stubs(folder)
    (folder / "more.env").write_text(scripts.MORE_ENV)
    return folder


def read(lab: Path, text: str) -> Followed:
    world = World(answers={"PWD": str(lab), **base(lab)}, script=str(lab / "serve.sh"))

    def sourced(path: str, cwd: object, script: str) -> tuple[str, str] | None:
        return (path, scripts.MORE_ENV) if path == f"{lab}/more.env" else None

    return follow("serve.sh", text, world, sourced)


def started_by_bash(lab: Path, text: str) -> list[Start]:
    (lab / "serve.sh").write_text(text)
    return run(["/bin/bash", "serve.sh"], {}, lab, lab)


def started_as_adopted(lab: Path, followed: Followed) -> list[Start]:
    """The services of the script, started as a unit starts them: argv, environment, folder, NUMA node."""
    starts = []
    for service in followed.services:
        node = f"{service.numa}"
        bind = [] if service.numa is None else ["numactl", f"--cpunodebind={node}", f"--membind={node}"]
        env = {name: str(setting.value) for name, setting in service.env.items()}
        starts += run([*bind, *map(str, service.argv)], env, lab, Path(str(service.cwd)))
    return starts


@RUNS
@given(text=scripts.supported)
def test_a_script_of_known_constructs_is_taken_whole_and_exactly(lab: Path, text: str) -> None:
    followed = read(lab, text)
    assert not [n for n in followed.notes if n.grade in SAID]
    assert started_as_adopted(lab, followed) == started_by_bash(lab, text)


@RUNS
@given(text=scripts.anything)
def test_any_script_is_taken_exactly_or_said_not_to_be(lab: Path, text: str) -> None:
    try:
        followed = read(lab, text)
    except ConfigError:
        event("refused")
        return
    if unknown(followed):
        event("said")
        return
    event("exact")
    assert started_as_adopted(lab, followed) == started_by_bash(lab, text)


def unknown(followed: Followed) -> bool:
    """Whether it was said that this is not the whole truth."""
    values = [v for s in followed.services for v in (*s.argv, s.cwd, *(e.value for e in s.env.values()))]
    return any(isinstance(v, Unknown) for v in values) or any(n.grade in SAID for n in followed.notes)


@RUNS
@given(text=scripts.anything)
def test_no_line_goes_unmentioned(lab: Path, text: str) -> None:
    try:
        notes = [n for n in read(lab, text).notes if n.file == "serve.sh"]
    except ConfigError:
        return
    said = {line for note in notes for line in range(note.first, note.last + 1)}
    lines = {
        n for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")
    }
    assert lines <= said
