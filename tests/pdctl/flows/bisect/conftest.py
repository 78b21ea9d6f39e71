"""One fleet of fake engines for all tests of a file that leave it as it was, and a fresh one for the
others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pdctl.flows.bisect import recovery, state
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, init_fleet
from tests.pdctl.flows.bisect.fleet import FEW, in_force, installed, write_noon
from tests.pdctl.flows.conftest import Bench, fake_python
from tests.pdctl.models import model_folder


def deployed(bench: Bench) -> Bench:
    """Six values differ."""
    write_noon(bench.folder / "profiles", FEW)
    bench.deploy()
    return bench


@pytest.fixture
def fresh(bench: Bench) -> Bench:
    return deployed(bench)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("noon")
    model_folder(folder / "model")
    init_fleet(folder / "fleet.toml", Wanted("test", str(folder / "model")))
    made = Bench(folder)
    made.edit('transport = "local"\n', f'transport = "local"\npython = "{fake_python(folder)}"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pdctl.flows.deploy.planning.package_files", lambda: made.files)
        yield deployed(made)
    down(made.context())


@pytest.fixture
def noon(shared: Bench) -> Iterator[Bench]:
    """Whatever was tried on it, it is as it was and no record is left."""
    was = installed(shared), in_force(shared)
    shared.restarted.clear()
    state.path(shared.fleet()).unlink(missing_ok=True)
    yield shared
    write_noon(shared.folder / "profiles", FEW)
    assert (installed(shared), in_force(shared)) == was
    assert not recovery.path(shared.fleet()).exists()
