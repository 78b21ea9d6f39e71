"""One real fleet on this machine whose profile is drillable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.deploy.planning import plan_deploy
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, init_fleet
from pdctl.remote.journal import Journal

START = 240.0


@pytest.fixture(scope="module")
def live(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    path = tmp_path_factory.mktemp("drills") / "fleet.toml"
    init_fleet(path, Wanted("drills", str(smollm), profile="drill", drill=True))
    with Context(load_fleet(path)) as ctx:
        try:
            with Journal(ctx.fleet.paths.journal, "deploy") as journal:
                apply_deploy(plan_deploy(ctx, START), journal)
            yield ctx
        finally:
            down(ctx)
