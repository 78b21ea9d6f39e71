"""SSH keeps the contract of every transport, logged in as root and as a user who is not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.transport.open import open_transport
from tests.hosts.lab.host import LabHost
from tests.hosts.operator_home import fleet_host
from tests.pdctl.transport.contract import *  # noqa: F403
from tests.pdctl.transport.contract import There


@pytest.fixture(params=[pytest.param("root", marks=pytest.mark.slow), "ops"])
def there(request: pytest.FixtureRequest, hosts: list[LabHost], home: Path) -> Iterator[There]:
    h1 = hosts[0]
    folder = f"/home/{uuid.uuid4().hex}"
    h1.sh(f"install -d -o {request.param} {folder}")
    opened = open_transport(fleet_host("h1", h1.address, user=request.param))
    yield There(opened, "/usr/bin/python3", folder, lambda path: h1.root / path.lstrip("/"))
    opened.close()
    h1.sh(f"rm -rf {folder}")
