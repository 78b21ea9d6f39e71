"""What adoption says a script starts is what bash starts; where it cannot say, it says so."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, event, example, given, settings

from pdctl.adopt.adopt import Wanted, adopt
from pdctl.adopt.notes import Grade, Unknown
from pdctl.adopt.shell.script import Followed, follow
from pdctl.adopt.shell.state import World
from pdctl.adopt.sources import Given, Place
from pdctl.errors import ConfigError
from pdctl.fleet.load import load_fleet
from pdctl.flows.deploy.desired import desired_unit
from pdctl.transport.local import LocalTransport
from pdctl.units.envfile import parse_env
from tests.examples import examples
from tests.pdctl.adopt import scripts
from tests.pdctl.adopt.bash import Start, base, make_stubs, run

SAID = (Grade.OPEN, Grade.MISSING)
RUNS = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))


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


REFUSED = '#!/bin/bash\nA=\\ \nexport "A=a"$A""\nexec python -m sglang.launch_server \n'


@RUNS
@given(text=scripts.supported)
@example(text=REFUSED)
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
@example(text="#!/bin/bash\nexec python -m sglang.launch_server \\\n &\nwait\n")
@example(text="#!/bin/bash\ncat <<EOF >/dev/null\nexport A=no $B\nEOF\nexec python -m sglang.launch_server\n")
def test_no_line_goes_unmentioned(lab: Path, text: str) -> None:
    try:
        notes = [n for n in read(lab, text).notes if n.file == "serve.sh"]
    except ConfigError:
        return
    said = {line for note in notes for line in range(note.first, note.last + 1)}
    lines = {
        n for n, line in enumerate(text.split("\n"), 1) if line.strip() and not line.lstrip().startswith("#")
    }
    assert lines <= said


@RUNS
@given(text=scripts.supported)
@example(text=REFUSED)
def test_the_adopted_fleet_starts_what_bash_starts(lab: Path, text: str) -> None:
    """Through everything that lies between: fleet file, profile, env file, unit."""
    text = text.replace(scripts.ENGINE, f"{scripts.ENGINE} --model-path m")
    (lab / "serve.sh").write_text(text)
    shutil.rmtree(lab / "out", ignore_errors=True)
    given_ = Given(answers={"PWD": str(lab), **base(lab)})
    place = Place("local", LocalTransport("local"), sys.executable, remote=False)
    wanted = Wanted(
        [(place, str(lab / "serve.sh"))],
        {"local": (['transport = "local"'], None)},
        lab / "out",
        "f",
        None,
        given_,
    )
    try:
        adopt(wanted)
    except ConfigError as error:
        assert "line break" in "".join(error.details), error.details
        assume(False)
    fleet = load_fleet(lab / "out")
    unit = desired_unit(fleet, fleet.engine("engine-0"), None)
    bind = []
    if unit.spec.numa is not None:
        bind = ["numactl", f"--cpunodebind={unit.spec.numa}", f"--membind={unit.spec.numa}"]
    env = {**unit.spec.env, **parse_env(unit.env_text())}
    as_unit = run([*bind, *unit.spec.argv], env, lab, Path(unit.spec.cwd))
    assert as_unit == started_by_bash(lab, text)
