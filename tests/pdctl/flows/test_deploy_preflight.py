"""Between a release that is installed and the switch to it: what is in the way stops its cell alone."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pdctl.__main__ import main
from pdctl.exits import Exit
from pdctl.flows.deploy.gate import unready
from pdctl.flows.deploy.result import DeployFailed, State
from tests.pdctl.flows.conftest import Bench

OLD, NEW = {"engine/__init__.py": b"1"}, {"engine/__init__.py": b"2"}


def stranger() -> tuple[socket.socket, int]:
    """Holds a port, in this process, which is none of the fleet's."""
    held = socket.create_server(("127.0.0.1", 0))
    return held, int(held.getsockname()[1])


def env_of(bench: Bench, unit: str) -> str:
    return (bench.root(bench.fleet().unit(unit).host) / "env" / f"{unit}.env").read_text()


@pytest.fixture
def pair(two: Bench) -> Iterator[Bench]:
    """Both cells serve OLD; deploys have a preflight."""
    two.check = True
    two.files = dict(OLD)
    two.deploy()
    yield two


def test_a_stranger_on_a_port_stops_its_cell_before_the_switch(pair: Bench) -> None:
    before, lives = pair.serving(), pair.lives()
    files = {h: (pair.root(h) / "current").readlink() for h in ("h1", "h2")}
    pair.restarted.clear()
    pair.files = dict(NEW)
    port = pair.fleet().engine("decode-b").port
    held, taken = stranger()
    text = pair.path.read_text()
    pair.path.write_text(text.replace(f"port = {port}\n", f"port = {taken}\n"))
    with closing(held), pytest.raises(DeployFailed) as caught:
        pair.deploy()
    error = caught.value
    assert error.exit is Exit.FINDINGS and error.code == "preflight"
    assert f"decode-b, ports: {taken} held by pid" in error.message
    assert error.details[0] == f"wanted: {taken} free, or held by decode-b"
    assert "kill " in error.hint and "--no-check" in error.hint
    now = {g.group: g.state for g in error.outcome.groups}
    assert (now["cell a"], now["cell b"]) == (State.DONE, State.STOPPED)
    assert pair.restarted == ["a"], "the other cell goes on"
    after = pair.serving()
    assert after["decode-a"] != before["decode-a"] and after["decode-b"] == before["decode-b"]
    assert pair.lives()["decode-b"] == lives["decode-b"]
    assert (pair.root("h2") / "current").readlink() == files["h2"], "nothing of it was switched"
    assert (pair.root("h1") / "current").readlink() != files["h1"]
    pair.path.write_text(text)
    pair.deploy()
    assert unready(pair.context()) == {} and len(set(pair.serving().values())) == 1


def test_what_units_that_end_hold_is_as_good_as_free(bench: Bench) -> None:
    """Two engines of a cell exchange their ports, a third goes and leaves its own to a new one."""
    bench.check = True
    bench.edit("[router]", '[cells.a.engines.old]\nrole = "decode"\nhost = "local"\nport = 1\n\n[router]')
    held, free = stranger()
    held.close()
    bench.edit("port = 1\n", f"port = {free}\n")
    bench.deploy()
    ports = {e.name: e.port for e in bench.fleet().engines()}
    swap = {ports["prefill-0"]: ports["decode-0"], ports["decode-0"]: ports["prefill-0"]}
    text = bench.path.read_text().replace("engines.old]", "engines.new]")
    text = re.sub(r"(?m)^port = (\d+)$", lambda m: f"port = {swap.get(int(m[1]), m[1])}", text)
    bench.path.write_text(text)
    made = bench.deploy()
    assert made.plan.of("preflight") and unready(bench.context()) == {}
    assert {e.name: e.port for e in bench.fleet().engines()} == {
        "prefill-0": ports["decode-0"],
        "decode-0": ports["prefill-0"],
        "new": free,
    }


def test_a_deploy_of_no_change_has_no_preflight(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.check = True
    asked: list[Any] = []
    monkeypatch.setattr("pdctl.flows.deploy.preflight.check", lambda *a, **k: asked.append(a))
    assert [p.step.id for p in bench.plan().plan.of("preflight")] == ["preflight/cell a", "preflight/router"]
    bench.check = False
    bench.deploy()
    bench.check = True
    assert bench.deploy().plan.pending == () and asked == []


def test_a_plan_shows_it_and_no_check_leaves_it_out(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def pdctl(*words: str) -> tuple[int, str, str]:
        code = main(["--fleet", str(bench.path), *words])
        return code, *capsys.readouterr()

    held, taken = stranger()
    port = bench.fleet().engine("decode-0").port
    bench.edit(f"port = {port}\n", f"port = {taken}\n")
    _, said, _ = pdctl("deploy", "--plan")
    assert "before anything is switched\n  ? preflight of cell a on local\n" in said
    assert "preflight" not in pdctl("deploy", "--plan", "--no-check")[1]
    with closing(held):
        code, said, err = pdctl("deploy")
        assert code == 3 and "stopped by preflight" in said
        assert f"decode-0, ports: {taken} held by pid" in err
        assert not (bench.root() / "units").exists() and not (bench.root() / "current").exists()
        code, _, err = pdctl("deploy", "--no-check", "--wait", "5")
        assert code != 0 and "Preflight" not in err, "it fails as it would have failed"
    code, said, err = pdctl("deploy")
    assert code == 0, said + err
