"""The supervisor's unit: installed and started by a deploy where the fleet file asks for it, then removed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.fleet.model import Fleet
from pdctl.flows.check.run import check
from pdctl.flows.context import Context
from pdctl.flows.deploy import supervisor
from pdctl.flows.deploy import supervisor_home as home
from pdctl.flows.deploy.result import DeployFailed
from pdctl.flows.down import down
from pdctl.flows.supervise.switch import Standby, lease_of
from pdctl.transport.base import Transport
from pdctl.transport.local import LocalTransport
from tests.pdctl.flows.conftest import Bench
from tests.pdctl.flows.supervise.test_daemon import until


@pytest.mark.slow
def test_a_deploy_starts_it_a_second_one_leaves_it_and_one_without_the_key_removes_it(bench: Bench) -> None:
    (bench.folder / "policy.toml").write_text('schema = 1\n[supervisor]\npage = ""\n')
    bench.deploy()
    assert not Path(bench.root(), "supervisor").exists()
    bench.edit("[fleet]\n", "[fleet]\nsupervise = true\n")
    made = bench.deploy()
    assert [p.step.id for p in made.plan.of("supervisor")] == [
        "local/unit/supervisor",
        "local/start/supervisor",
    ]
    ctx = bench.context()
    status = supervisor.units_of(ctx).status([supervisor.NAME])[supervisor.NAME]
    assert status.running
    until(lambda: lease_of(ctx).look())
    assert not bench.plan().plan.of("supervisor") and not bench.plan().plan.changes
    assert supervisor.NAME not in bench.lives(), "it is no unit of what serves"
    bench.edit("supervise = true\n", "")
    bench.deploy()
    assert not supervisor.units_of(ctx).specs()
    bench.edit("[fleet]\n", "[fleet]\nsupervise = true\n")
    bench.deploy()
    down(bench.context())
    assert not supervisor.units_of(ctx).status([supervisor.NAME])[supervisor.NAME].running


@pytest.mark.slow
def test_one_that_does_not_start_fails_the_deploy_with_what_it_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.edit("[fleet]\n", "[fleet]\nsupervise = true\n")
    made, policy = bench.plan(), bench.folder / "policy.toml"
    policy.write_text('schema = 1\n[supervisor]\nmode = "acts"\n')
    with pytest.raises(DeployFailed) as caught:
        bench.apply(made)
    assert caught.value.message.startswith(
        "The supervisor did not start: it is failed (ended with exit code 2"
    )
    assert caught.value.exit is not Exit.OK and "policy.toml:3: supervisor.mode: must be" in str(
        caught.value.document()
    )


def test_its_lease_does_not_lie_where_its_unit_does(bench: Bench) -> None:
    with bench.context() as ctx:
        spec = supervisor.desired(ctx)
        ctx.transport("local").put(b"", spec.env_file, 0o600)
        said: list[str] = []
        standby = Standby(ctx, said.append)
        assert standby.acquire() and standby.other == "", said
        standby.end()


def test_what_could_not_run_is_refused_before_anything_is_changed(bench: Bench) -> None:
    bench.edit("[fleet]\n", "[fleet]\nsupervise = true\n")
    (bench.folder / "policy.toml").write_text('schema = 1\n[supervisor]\nmode = "acts"\n')
    with bench.context() as ctx, pytest.raises(ConfigError, match="policy"):
        supervisor.desired(ctx)
    fleet = bench.fleet()
    far = replace(elsewhere(fleet), hosts={**elsewhere(fleet).hosts, "here": fleet.hosts["local"]})
    line = bench.path.read_text().splitlines().index("supervise = true") + 1
    with Context(far) as ctx:
        for refuses in (lambda: supervisor.desired(ctx), lambda: check(ctx)):
            with pytest.raises(ConfigError) as caught:
                refuses()
            assert caught.value.message.startswith(f"{bench.path}:{line}: fleet.supervise: the supervisor")
            assert "is local: no machine but this one" in caught.value.message


def elsewhere(fleet: Fleet) -> Fleet:
    """The same with its control host on the other end of an SSH connection."""
    host = fleet.hosts["local"]
    return replace(
        fleet,
        hosts={"local": replace(host, spec=host.spec.model_copy(update={"transport": "ssh"}))},
    )


class Far(Context):
    """Its control host's hands are here, and its files below another folder."""

    def transport(self, host: str) -> Transport:
        return LocalTransport(host)


def test_another_machine_gets_the_files_that_the_supervisor_reads_and_no_more(
    bench: Bench, tmp_path: Path
) -> None:
    bench.edit("[fleet]\n", "[fleet]\nsupervise = true\n")
    (bench.folder / "policy.toml").write_text(
        'schema = 1\n[notify.chat]\nwebhook = "http://x/"\nsecret = "t"\n'
    )
    (bench.folder / "t").write_text("a token\n")
    ctx = Far(elsewhere(bench.fleet()))
    found = home.files(ctx.fleet)
    assert {"fleet.toml", "policy.toml", "t", ".pdctl/token", "profiles/default.toml"} <= set(found)
    assert not any(name.endswith(".db") for name in found)
    assert len(home.differences(ctx, found)) == len(found)
    home.send(ctx, found)
    there = Path(home.folder(ctx.fleet))
    assert not home.differences(ctx, found)
    assert {p.stat().st_mode & 0o777 for p in there.rglob("*") if p.is_file()} == {0o600}
    assert (there / ".pdctl").stat().st_mode & 0o777 == 0o700
    (bench.folder / "policy.toml").unlink()
    fewer = home.files(ctx.fleet)
    assert home.digest(fewer) != home.digest(found)
    assert home.differences(ctx, fewer) == ["policy.toml: not here"]
    home.send(ctx, fewer)
    assert not (there / "policy.toml").exists() and not home.differences(ctx, fewer)
    (there / ".pdctl" / "supervisor.db").write_bytes(b"what it saw")
    home.remove(ctx, ctx.fleet.control)
    assert [p.name for p in there.rglob("*") if p.is_file()] == ["supervisor.db"]


def test_a_file_that_lies_elsewhere_is_refused_with_its_name(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("x") / "outside"
    bench.edit("[fleet]\n", "[fleet]\nsupervise = true\n")
    outside.write_text("a token\n")
    (bench.folder / "policy.toml").write_text(
        f'schema = 1\n[notify.chat]\nwebhook = "http://x/"\nsecret = "{outside}"\n'
    )
    with pytest.raises(ConfigError, match="outside is not in the fleet's folder"):
        home.files(elsewhere(bench.fleet()))


@pytest.mark.parametrize(
    ("says", "words"),
    [("echo pdctl 0.0.1", "that is pdctl 0.0.1"), ("exit 1", "there is none"), (None, "there is none")],
)
def test_a_control_host_without_the_same_pdctl_is_told_so(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str | None, words: str
) -> None:
    """Only what stands behind PATH is looked at: a login's own places come last."""
    bench.edit("[fleet]\n", "[fleet]\nsupervise = true\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(home, "_FIND", "command -v pdctl && pdctl --version")
    if says is not None:
        (tmp_path / "pdctl").write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / "pdctl").chmod(0o755)
    with pytest.raises(ConfigError, match=words):
        home.program(Far(elsewhere(bench.fleet())), "0.1.0")
    (tmp_path / "pdctl").write_text("#!/bin/sh\necho pdctl 0.1.0\n")
    (tmp_path / "pdctl").chmod(0o755)
    assert home.program(Far(elsewhere(bench.fleet())), "0.1.0") == f"{tmp_path}/pdctl"


def test_a_control_host_without_a_unit_gets_it_and_one_that_is_none_any_more_loses_it(bench: Bench) -> None:
    bench.edit("[fleet]\n", '[fleet]\nsupervise = true\ncontrol = "here"\n')
    bench.edit("[hosts.local]\n", '[hosts.here]\ntransport = "local"\n\n[hosts.local]\n')
    (bench.folder / "policy.toml").write_text('schema = 1\n[supervisor]\npage = ""\n')
    made = bench.plan()
    assert [p.step.id for p in made.plan.of("supervisor")] == [
        "here/unit/supervisor",
        "here/start/supervisor",
    ]
    assert not bench.plan("local").plan.of("supervisor"), "a limit leaves it out"
    made.plan.of("supervisor")[0].step.apply()
    bench.edit('control = "here"', 'control = "local"')
    there = [p.step.id for p in bench.plan().plan.of("supervisor")]
    assert there == ["here/remove/supervisor", "local/unit/supervisor", "local/start/supervisor"]
