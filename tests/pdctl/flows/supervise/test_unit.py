"""The supervisor's unit: installed and started by a deploy where the fleet file asks for it, then removed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.flows.check.run import check
from pdctl.flows.context import Context
from pdctl.flows.deploy import supervisor
from pdctl.flows.deploy.result import DeployFailed
from pdctl.flows.down import down
from pdctl.flows.supervise.switch import Standby, lease_of
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
    assert caught.value.exit is not Exit.OK and f"{policy}:3" in str(caught.value.document())


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
    fleet = bench.fleet()
    with pytest.raises(ConfigError, match="policy"):
        supervisor.desired(fleet)
    host = fleet.hosts["local"]
    far = replace(host, spec=host.spec.model_copy(update={"transport": "ssh"}))
    elsewhere = replace(fleet, hosts={"local": far})
    line = bench.path.read_text().splitlines().index("supervise = true") + 1
    with Context(elsewhere) as ctx:
        for refuses in (lambda: supervisor.desired(elsewhere), lambda: check(ctx)):
            with pytest.raises(ConfigError) as caught:
                refuses()
            assert caught.value.message.startswith(f"{bench.path}:{line}: fleet.supervise: the control host")
            assert "deploy from there" in (caught.value.hint or "")
