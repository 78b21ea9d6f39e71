"""The local transport on a machine whose operator is not root: root=True goes through sudo."""

from __future__ import annotations

import json

import pytest

from tests.hosts.lab.host import LabHost

SCRIPT = """
import json
from pdctl.errors import PdctlError
from pdctl.transport.command import Command
from pdctl.transport.local import LocalTransport
here = LocalTransport("here")
said = {}
try:
    said["id"] = here.run(Command(("sh", "-c", "id -un; cat; exit 3"), stdin=b"in", root=True), 20).text
    here.put(b"x", "/etc/systemd/system/y.service", 0o640, root=True)
    said["get"] = here.get("/etc/systemd/system/y.service", root=True).decode()
    late = here.run(Command(("sh", "-c", "sleep 98766 & sleep 98766"), root=True), 0.5)
    said["late"] = [late.rc, late.timed_out]
    said["plain"] = here.run(Command(("id", "-un")), 20).text
except PdctlError as error:
    said["error"] = error.document()
here.close()
print(json.dumps(said))
"""


def local(host: LabHost, user: str) -> dict[str, object]:
    path = "PYTHONPATH=/opt/pd/project:/opt/pd/site-packages"
    said: dict[str, object] = json.loads(
        host.sh(f"cd /; {path} python3 - <<'E'\n{SCRIPT}\nE", user=user).splitlines()[-1]
    )
    return said


@pytest.mark.parametrize("user", ["ops", "root"])
def test_root_is_reached_and_what_runs_as_root_is_ended(
    hosts: list[LabHost], host_python: str, user: str
) -> None:
    said = local(hosts[0], user)
    assert said == {"id": "root\nin", "get": "x", "late": [-9, True], "plain": f"{user}\n"}
    file = hosts[0].root / "etc/systemd/system/y.service"
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (0, 0o640)
    assert hosts[0].sh("pgrep -fc '^sleep 98766' || true") == "0\n"
    file.unlink()


def test_sudo_that_refuses_is_a_sentence(hosts: list[LabHost], host_python: str) -> None:
    error = local(hosts[0], "dev")["error"]
    assert isinstance(error, dict)
    assert (error["code"], error["exit"]) == ("sudo_refused", 2)
    assert "here does not let you become root" in error["message"]
